"""Answers of the store that another dashboard may change: believed for two seconds, this one forgets them at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

FRESH_FOR_S = 2.0
MOST_KEPT = 10_000
T = TypeVar("T")


class FreshAnswers(Generic[T]):
    """Reads and keeps an answer for each name; safe to use from any thread."""

    def __init__(self, read: Callable[[str], T], now: Callable[[], float], keeps_none: bool = True) -> None:
        """Without `keeps_none`, a name without an answer is read each time: it may get one at any moment."""
        self._read, self._now, self._keeps_none = read, now, keeps_none
        self._kept: dict[str, tuple[float, T]] = {}
        self._lock = threading.Lock()
        self.changes = 0
        """How often answers were forgotten."""

    def answer(self, name: str) -> T:
        """The answer, read if it is older than two seconds. Raises what reading raises."""
        if (recalled := self.recall(name)) is not None and recalled[1]:
            return recalled[0]
        asked_at, changes = self._now(), self.changes
        answer = self._read(name)
        with self._lock:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            is_kept = answer is not None or self._keeps_none
            if is_kept and changes == self.changes:  # otherwise it may have changed while it was read
                self._kept[name] = asked_at, answer
        return answer

    def recall(self, name: str) -> tuple[T, bool] | None:
        """The last answer and whether it is still believed, without reading; None where there is none."""
        entry = self._kept.get(name)
        return None if entry is None else (entry[1], self._now() - entry[0] < FRESH_FOR_S)

    def forget(self) -> None:
        """Read everything again."""
        with self._lock:
            self._kept.clear()
            self.changes += 1
