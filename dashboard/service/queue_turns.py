"""Turns of the scheduler: one at a time, and where a turn takes long, only so often that it stays cheap."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SCHEDULING_SHARE = 0.05
"""Share of one core for scheduling that only reports ask for, so that a large queue is not read for each of them."""
SHORT_SCHEDULING_S = 0.03


class QueueTurns:
    """When the queue may be looked at; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due_from = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last turn is long enough ago, by what it cost, for one that nobody waits for."""
        return time.monotonic() >= self._due_from

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Take a turn alone and measure it, in seconds of this thread's processor time."""
        with self._lock:
            began_s = time.thread_time()
            yield
            spent_s = time.thread_time() - began_s
            pause_s = spent_s / SCHEDULING_SHARE if spent_s > SHORT_SCHEDULING_S else 0.0
            self._due_from = time.monotonic() + pause_s
