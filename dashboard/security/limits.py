"""Limits on how often a sender may try something within a time, and the refusal of one who has to wait."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

MOST_SENDERS = 10_000


class TryLater(Exception):
    """A refusal for some seconds, answered with its status and a Retry-After."""

    status = 429
    retry_after_s: float

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {"Retry-After": f"{self.retry_after_s:.0f}"}


class RateLimit:
    """At most so many tries of each sender within a period; safe to use from any thread."""

    def __init__(self, most: int, period_s: float, now: Callable[[], float]) -> None:
        self._most, self._period_s, self._now = most, period_s, now
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, sender: str) -> bool:
        """Count one try before it is made, so that many at once are not more; False where this sender has to wait."""
        with self._lock:
            tries = self._recent(sender)
            if is_free := len(tries) < self._most:
                tries.append(self._now())
            return is_free

    def give_back(self, sender: str) -> None:
        """Count one try less: it was a right one."""
        with self._lock:
            if tries := self._recent(sender):
                tries.pop()

    def _recent(self, sender: str) -> deque[float]:
        tries = self._tries.setdefault(sender, deque())
        self._tries.move_to_end(sender)
        if len(self._tries) > MOST_SENDERS:
            self._tries.popitem(last=False)
        while tries and self._now() - tries[0] > self._period_s:
            tries.popleft()
        return tries
