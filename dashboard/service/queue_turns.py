"""Runs the scheduler one turn at a time, and limits how often slow turns repeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SCHEDULING_SHARE = 0.05
"""Share of one core for scheduling after reports: a large queue is not read for every one of them."""
SHORT_SCHEDULING_S = 0.03


class QueueTurns:
    """Limits turns of the scheduler; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due_from = 0.0

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last turn, given its cost, for a turn that nobody waits for."""
        return time.monotonic() >= self._due_from

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Take a turn exclusively, and measure its processor time."""
        with self._lock:
            began_s = time.thread_time()
            yield
            spent_s = time.thread_time() - began_s
            pause_s = spent_s / SCHEDULING_SHARE if spent_s > SHORT_SCHEDULING_S else 0.0
            self._due_from = time.monotonic() + pause_s
