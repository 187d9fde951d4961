"""The machine's time, of which a test can let any amount pass at once."""

from __future__ import annotations

import threading

from domain.clock import SystemClock

LOOK_S = 0.005


class PassingTime(SystemClock):
    """A clock that goes as the machine's, and a waiter that sees what passed besides."""

    def __init__(self) -> None:
        self._passed_s = 0.0
        self.is_awaited = False
        """Whether somebody still waits after what passed last."""

    def now(self) -> float:
        return super().now() + self._passed_s

    def wall(self) -> float:
        return super().wall() + self._passed_s

    def wait(self, until: float, woken: threading.Event | None = None) -> bool:
        awaited = woken or threading.Event()
        while self.now() < until:
            self.is_awaited = True
            if awaited.wait(LOOK_S):
                break
        return awaited.is_set()

    def pass_by(self, seconds: float) -> None:
        """Let so much time pass."""
        self._passed_s += seconds
        self.is_awaited = False
