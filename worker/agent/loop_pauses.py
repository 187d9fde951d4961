"""How soon the worker's loops look again: soon while somebody watches, and for a moment after an attempt has ended."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TypeAlias

from worker.attempt.attempt import TaskKey

HURRIED_PAUSE_S = 0.02
PAUSE_S = 0.2
IDLE_PAUSE_S = 1.0
"""While no attempt is on this node; news from the server end the pause of the steps."""
PAUSE_PER_STEP = 5
"""The pause after a step is at least this many times as long as the step and the server's answers took where trainings
use all cores: they lost a quarter of their steps to shorter pauses."""
PAUSE_PER_STEP_BESIDE_IDLE_CORES = 1
IDLE_CORES = 0.5
"""With so many idle cores a step takes nothing from a training."""
LONGEST_PAUSE_S = 1.0
"""The longest pause in seconds, also where the server answers late."""
HURRY_S = 5.0
"""Seconds after an end: once the server has everything, it opens the next attempt or gives the devices away."""

Key: TypeAlias = TaskKey


class LoopPauses:
    """The pauses of the loops, which run in a thread each."""

    def __init__(self) -> None:
        self._ended: frozenset[Key] = frozenset()
        self._hurried_until = float("-inf")
        self._usual_s = PAUSE_S
        self._may_copy, self._may_send = threading.Event(), threading.Event()

    def pause_s(
        self,
        now: float,
        took_s: float,
        ended: Collection[Key],
        *,
        is_watched: bool,
        is_idle: bool = False,
        idle_cores: float = 0.0,
    ) -> float:
        """Seconds from a step that took so long until the next one.

        `ended`: the attempts without a process whose end is not settled."""
        self._usual_s = IDLE_PAUSE_S if is_idle else PAUSE_S
        if not self._ended.issuperset(ended):
            self._hurried_until = now + HURRY_S
            self._may_copy.set()
        self._ended = frozenset(ended)
        is_hurried = is_watched or now < self._hurried_until
        per_step = PAUSE_PER_STEP_BESIDE_IDLE_CORES if idle_cores >= IDLE_CORES else PAUSE_PER_STEP
        return max(HURRIED_PAUSE_S if is_hurried else self._usual_s, min(per_step * took_s, LONGEST_PAUSE_S))

    def wait_to_copy(self) -> None:
        """Wait until checkpoints are looked for again; at once when an attempt has ended."""
        if self._may_copy.wait(self._usual_s):
            self._may_copy.clear()
            self._may_send.set()

    def wait_to_send(self) -> None:
        """Wait until copies are sent again."""
        self._may_send.wait(self._usual_s)
        self._may_send.clear()
