"""Answers shared by all who ask: read again once they have cost little enough."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from domain.clock import SYSTEM_CLOCK

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
CPU_SHARE = 0.05
"""Share of one core that reading one answer may take: a slow one is kept longer."""


class CostCache(Generic[Key, Answer]):
    """The last answer of each key, as old as `least_s` at least and as it cost to read at most."""

    def __init__(
        self,
        least_s: float = 0.0,
        most: int = 64,
        clock: Callable[[], float] = SYSTEM_CLOCK.now,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._least_s, self._most = least_s, most
        self._clock, self._cpu_clock = clock, cpu_clock
        self._lock = threading.Lock()
        self._answers: OrderedDict[Key, tuple[float, Answer]] = OrderedDict()

    def get(self, key: Key, read: Callable[[], Answer]) -> Answer:
        """Return the answer as it was a moment ago, or read it; raises what reading raises."""
        with self._lock:
            if key in self._answers and self._clock() < self._answers[key][0]:
                return self._answers[key][1]
            began_s = self._cpu_clock()
            answer = read()
            spent_s = self._cpu_clock() - began_s
            self._answers[key] = self._clock() + max(self._least_s, spent_s / CPU_SHARE), answer
            self._answers.move_to_end(key)
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)
            return answer
