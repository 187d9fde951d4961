"""Ends the processes of an attempt whose supervisor was killed: SIGTERM, then SIGKILL."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

from worker.node import processes
from worker.node.attempt_files import MEMBERS_FILE, STATE_FILE
from worker.node.processes import Process
from worker.node.state_files import read_object

log = logging.getLogger(__name__)
GRACE_S = 5.0
"""The time they have to save after the SIGTERM that followed the supervisor's death."""


class Orphans:
    """The processes of one attempt on this node, found by its id in their environment, and as kin of those that the
    supervisor has recorded in the attempt's folder: a process may have emptied its environment."""

    def __init__(self, folder: Path, run_id: str, attempt: int, node_rank: int) -> None:
        self._folder = folder
        self._run_id, self._attempt, self._node_rank = run_id, attempt, node_rank
        self._since: float | None = None

    def end(self, now: float) -> bool:
        """End them; returns True when none is left, and must be called again until then."""
        remaining = self._processes()
        if self._since is None:
            log.warning("attempt %s/%d lost its supervisor", self._run_id, self._attempt)
            self._since = now
            for process in remaining:
                processes.send_signal(process, signal.SIGTERM)
        if now - self._since >= GRACE_S:
            processes.kill_all(self._processes, timeout_s=1.0)
            remaining = self._processes()
        return not remaining

    def _processes(self) -> list[Process]:
        named = processes.of_attempt(self._run_id, self._attempt, self._node_rank)
        return sorted({*named, *processes.kin([*_recorded(self._folder), *named])})


def _recorded(folder: Path) -> list[Process]:
    """The supervisor and its processes, as it recorded them since this machine's start."""
    state, members = read_object(folder / STATE_FILE), read_object(folder / MEMBERS_FILE)
    pairs = [(state, (state.get("pid"), state.get("start_ticks")))]
    pairs += [(members, tuple(pair)) for pair in members.get("members", ())]
    return [
        Process(pid, ticks)
        for source, (pid, ticks) in pairs
        if isinstance(pid, int) and isinstance(ticks, int) and source.get("boot_id") == processes.boot_id()
    ]
