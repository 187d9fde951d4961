"""Lets a program of ours stand back for the ranks that it serves, while they run on this machine."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Collection
from itertools import pairwise

from domain.clock import SYSTEM_CLOCK, Clock
from worker.node.attempt_files import SUPERVISOR_MODULE
from worker.node.processes import Process, began_session, is_alive, set_policy, set_session_niceness, with_arguments

WORKER_NICENESS = 10
"""Beside ranks that need all cores a worker copies and sends with a tenth of one."""
DASHBOARD_NICENESS = 5
"""A third of a session's weight: with a tenth, a list took 2.8 s (p95) where others kept two cores busy besides ranks;
so it takes 0.5 s."""


class StandingBack:
    """How far this program stands back: not at all at first, and while ranks of ours run.

    Nice values of processes are no way: without rights they cannot be lowered again, as those of sessions can."""

    def __init__(self, niceness: int, *, interrupts: bool) -> None:
        """`niceness`: that of its session meanwhile, unless a shell began that, because other programs are in it.
        `interrupts`: whether it takes a core from a rank as soon as it wants one; what it starts does so, too."""
        self._niceness, self._interrupts = niceness, interrupts
        self._has_session = began_session()
        self.stands_back = False
        """Whether it does so now."""

    def follow(self, *, ranks_run: bool) -> None:
        """Stand back if ranks run, else no longer. What the kernel refuses for now is tried at the next call."""
        if ranks_run == self.stands_back or sys.platform != "linux":
            return
        if self._has_session and not set_session_niceness(self._niceness if ranks_run else 0):
            return
        if not self._interrupts:
            set_policy(os.SCHED_BATCH if ranks_run else os.SCHED_OTHER)
        self.stands_back = ranks_run


SHARE_OF_LOOKS = 0.01
"""The part of a core that looking through all processes may take."""


class RanksHere:
    """Whether runs have ranks on this machine, seen by their supervisors: these live as long as the ranks, whatever
    becomes of worker and dashboard, and every account may read their command lines."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, used: Callable[[], float] = time.thread_time) -> None:
        """`used`: seconds of processor time of this thread."""
        self._clock, self._used, self._look_at = clock, used, -math.inf
        self._supervisors: list[Process] = []

    def of_runs(self, run_ids: Collection[str]) -> bool:
        """Whether a supervisor of one of these runs lives here; asked often, it sees a new one a little later."""
        self._supervisors = [*filter(is_alive, self._supervisors)]
        if run_ids and not self._supervisors and self._clock.now() >= self._look_at:
            began = self._used()
            self._supervisors = with_arguments(lambda words: _supervises(words, run_ids))
            self._look_at = self._clock.now() + (self._used() - began) / SHARE_OF_LOOKS
        return bool(self._supervisors)


def _supervises(words: list[str], run_ids: Collection[str]) -> bool:
    options = pairwise(words if SUPERVISOR_MODULE in words else [])
    return any(option == "--attempt" and label.partition("/")[0] in run_ids for option, label in options)


class DashboardBesideRanks:
    """A dashboard that stands back while one of its runs has ranks on this machine."""

    def __init__(self) -> None:
        self._ranks, self._standing = RanksHere(), StandingBack(DASHBOARD_NICENESS, interrupts=False)

    def follow(self, live_runs: Collection[str]) -> None:
        """Stand back, or no longer; `live_runs`: those of its store, wherever they run."""
        if sys.platform == "linux":
            self._standing.follow(ranks_run=self._ranks.of_runs(live_runs))
