"""Recognise ranks whose process is stopped: by SIGSTOP, by reading from a terminal, or by a debugger."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from domain.messages import Finding
from worker.monitor.hangs import RankStatus

KIND = "stopped rank"
STOPPED, TRACED = "T", "t"
ReadStatus = Callable[[int], str]


class StoppedRanks:
    """Remembers the ranks that were stopped at the last look: a debugger stops a process often for a moment."""

    def __init__(self, read_status: ReadStatus | None = None) -> None:
        self._read_status = read_status or _status_of
        self._before: set[int] = set()

    def findings(self, statuses: Collection[RankStatus]) -> list[Finding]:
        """Return a finding for each rank that is stopped at two looks in succession."""
        texts = {status: self._read_status(status.pid) for status in statuses if not status.ended}
        stopped = {status: text for status, text in texts.items() if _field(text, "State")[:1] in ("T", "t")}
        lasting = {status: text for status, text in stopped.items() if status.pid in self._before}
        self._before = {status.pid for status in stopped}
        return [_finding(status, text) for status, text in sorted(lasting.items(), key=lambda item: item[0].rank)]


def _finding(status: RankStatus, text: str) -> Finding:
    node, tracer = socket.gethostname(), _field(text, "TracerPid")
    if _field(text, "State").startswith(TRACED) and tracer not in ("", "0"):
        how, fix = f"a debugger (pid {tracer}) holds it", f"Detach the debugger on node {node}."
    else:
        how = "state T: by SIGSTOP, SIGTSTP or SIGTTIN"
        fix = f"Continue it: kill -CONT {status.pid} on node {node}."
    return Finding(
        kind=KIND,
        evidence=f"Rank {status.rank} (pid {status.pid} on node {node}) is stopped after step {status.step}; {how}.",
        meaning="A stopped process does nothing, and the other ranks wait for it in their next collective.",
        fix=fix,
    )


def _status_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/status").read_text()
    return ""


def _field(text: str, name: str) -> str:
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:")), "")
