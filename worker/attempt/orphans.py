"""Ends the processes of an attempt whose supervisor was killed: SIGTERM, then SIGKILL."""

from __future__ import annotations

import logging
import signal

from worker.node import processes

log = logging.getLogger(__name__)
GRACE_S = 5.0
"""The time they have to save after the SIGTERM that followed the supervisor's death."""


class Orphans:
    """The processes of one attempt, found by its id in their environment."""

    def __init__(self, run_id: str, attempt: int) -> None:
        self._run_id, self._attempt = run_id, attempt
        self._since: float | None = None

    def end(self, now: float) -> bool:
        """End them; returns True when none is left, and must be called again until then."""
        remaining = processes.of_attempt(self._run_id, self._attempt)
        if self._since is None:
            log.warning("attempt %s/%d lost its supervisor", self._run_id, self._attempt)
            self._since = now
            for process in remaining:
                processes.send_signal(process, signal.SIGTERM)
        if now - self._since >= GRACE_S:
            processes.kill_all(lambda: processes.of_attempt(self._run_id, self._attempt), timeout_s=1.0)
            remaining = processes.of_attempt(self._run_id, self._attempt)
        return not remaining
