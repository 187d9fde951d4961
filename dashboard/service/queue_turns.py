"""Runs the scheduler one turn at a time for all who ask, and limits how often slow turns repeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SCHEDULING_SHARE = 0.05
"""Share of one core for scheduling after reports: a large queue is not read for every one of them."""
SHORT_SCHEDULING_S = 0.03


class QueueTurns:
    """Shares and limits turns of the scheduler; safe to use from any thread."""

    def __init__(self, take_turn: Callable[[], None]) -> None:
        self._take_turn = take_turn
        self._turn, self._counting = threading.Lock(), threading.Lock()
        self.asked = self._served = 0
        """How often somebody has waited for a turn."""
        self._due_from = 0.0

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last turn, given its cost, for a turn that nobody waits for."""
        return time.monotonic() >= self._due_from

    def wait(self, only_if_due: bool = False) -> None:
        """Return after a turn that began after this call; all who wait for one share it.

        `only_if_due`: return without one when it is not due, also when another's turn was taken meanwhile."""
        if only_if_due and not self.is_due:
            return
        with self._counting:
            self.asked += 1
            ticket = self.asked
        with self._turn:
            if self._served >= ticket or (only_if_due and not self.is_due):
                return
            served, began_s = self.asked, time.thread_time()
            try:
                self._take_turn()
                self._served = served
            finally:
                spent_s = time.thread_time() - began_s
                pause_s = spent_s / SCHEDULING_SHARE if spent_s > SHORT_SCHEDULING_S else 0.0
                self._due_from = time.monotonic() + pause_s
