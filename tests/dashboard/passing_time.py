"""The machine's time, which a test can move forward."""

from __future__ import annotations

import threading

from domain.clock import SystemClock

LOOK_S = 0.005


class PassingTime(SystemClock):
    """The machine's clock plus the seconds that a test has added, which its waiters notice."""

    def __init__(self) -> None:
        self._passed_s = 0.0
        self.is_awaited = False
        """Whether a thread has waited on this clock since the last `pass_by`."""

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
        """Move the time forward at once."""
        self._passed_s += seconds
        self.is_awaited = False
