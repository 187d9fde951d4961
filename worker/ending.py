"""From what an ended attempt left on this node's disk to the report of its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from db.states import PartReport
from worker.diagnose import EndFacts, explain_end

TAIL_BYTES = 64 * 1024
SHUTDOWN_MESSAGE = "the worker was shut down"


def end_of(
    folder: Path, state: dict[str, Any], order: dict[str, Any], node: str, node_rank: int, shut_down: bool
) -> PartReport:
    """The terminal report: `state` is the supervisor's last word, `order` what it was told to start."""
    facts = EndFacts(
        exit_code=state["exit_code"],
        signal=state["signal"],
        launcher=order.get("launcher", "torchrun"),
        node=node,
        node_rank=node_rank,
        stop_requested=state["stop_requested_at"] is not None,
        killed_by_us=bool(state["killed"]) and state["stop_requested_at"] is not None,
        launch_error=state["launch_error"],
        launcher_err=_tail(folder / "logs" / "launcher.err"),
        rank_errs=_rank_errs(folder / "logs"),
        error_file=_tail(folder / "error.json") or None,
    )
    verdict = explain_end(facts)
    message = SHUTDOWN_MESSAGE if shut_down and verdict.state == "stopped" else verdict.message
    return PartReport(
        state=verdict.state,
        pid=state["pid"],
        exit_code=state["exit_code"],
        reason=verdict.reason,
        message=message,
        error=verdict.error,
    )


def _rank_errs(logs: Path) -> dict[int, str]:
    found = {}
    for path in logs.glob("rank*.err"):
        if match := re.fullmatch(r"rank(\d+)", path.stem):
            found[int(match[1])] = _tail(path)
    return found


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
