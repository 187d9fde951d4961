"""Wait for a run's end at the terminal, showing its status on one line."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from cli.server.client import ServerClient, ServerUnreachable
from cli.server.options import run_path
from cli.terminal import CommandFailed, printable, warn
from domain.text import formats
from domain.waiting import PATIENCE_S as PATIENCE_S
from domain.waiting import has_ended

POLL_S = 0.5


def wait_until_ended(server: ServerClient, run_id: str) -> dict[str, Any]:
    """Poll until the run has ended, its curves and checkpoints are complete, and return it.

    It is tried again while the dashboard is away; a node that is silent then is not waited for.

    Raises CommandFailed at Ctrl-C."""
    line = StatusLine()
    is_away = False
    try:
        while True:
            try:
                run: dict[str, Any] = server.get(run_path(run_id))
            except ServerUnreachable as error:
                if not is_away:
                    warn(f"{error} Waiting for it.")
                is_away = True
                time.sleep(PATIENCE_S)
                continue
            is_away = False
            if is_complete(run):
                return run
            line.show(describe(run, time.time()))
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        raise CommandFailed(f"Run {run_id} continues; `rankzero stop {run_id}` stops it.", 130) from None
    finally:
        line.clear()


def is_complete(run: Mapping[str, Any]) -> bool:
    """Return whether a run has ended and its curves and checkpoints are complete, or as complete as can be."""
    return has_ended(run["state"], run.get("delivery"))


def describe(run: dict[str, Any], now: float) -> str:
    """Return a run's status in one line: running · step 120/1000 · loss 2.31 · 12.4 k samples/s."""
    parts = [run["state"] + (", lost contact" if run.get("lost_contact") else "")]
    if run.get("kill_at"):
        left_s = min(run["kill_at"] - now, run["spec"]["stop_grace_s"])  # these are two machines' clocks
        parts.append(f"killed in {max(0, math.ceil(left_s))} s")
    if run.get("delivery"):
        parts.append(run["delivery"]["sentence"])
    if run.get("waiting_for"):
        parts.append(run["waiting_for"])
    if run.get("finding"):
        parts.append(run["finding"].partition(":")[0])
    if run.get("step") is not None:
        parts.append(f"step {run['step']}" + (f"/{run['total_steps']}" if run.get("total_steps") else ""))
    if run.get("total_epochs") and not run.get("total_steps") and isinstance(run.get("current_epoch"), int | float):
        parts.append(f"epoch {run['current_epoch']:.4g}/{run['total_epochs']}")
    if isinstance(run.get("last_loss"), int | float):
        parts.append(f"loss {formats.number(run['last_loss'], 4)}")
    if isinstance(run.get("throughput"), int | float):
        parts.append(f"{formats.number(run['throughput'])} samples/s")
    if isinstance(run.get("eta_s"), int | float):
        parts.append(f"{formats.duration(run['eta_s'])} left")
    return " · ".join(parts)


class StatusLine:
    """A line on stderr that is overwritten; silent where stderr is not a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line's text."""
        if self._shown:
            print(f"\r\x1b[K{printable(text)}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Clear the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
