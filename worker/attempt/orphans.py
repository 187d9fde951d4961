"""Ends the processes of an attempt whose supervisor was killed: SIGTERM, then SIGKILL."""

from __future__ import annotations

import logging
import signal

from worker.node import processes

log = logging.getLogger(__name__)
GRACE_S = 5.0
"""The time they have to save after the SIGTERM that followed the supervisor's death."""


class Orphans:
    """The processes of one attempt on this node, found by its id in their environment."""

    def __init__(self, run_id: str, attempt: int, node_rank: int) -> None:
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

    def _processes(self) -> list[processes.Process]:
        return processes.of_attempt(self._run_id, self._attempt, self._node_rank)
