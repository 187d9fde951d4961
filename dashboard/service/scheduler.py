"""Takes turns of the scheduler for all who ask: gives free devices to queued runs, and tells everybody concerned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from dashboard.clock import AnchoredTime
from dashboard.cluster.registry import NodeRegistry
from dashboard.cluster.slurm_jobs import SlurmJobs
from db import acting
from db.attempts import new_attempt
from db.engine import Store
from db.scheduling import queue_placement
from domain.clock import SYSTEM_CLOCK, Clock


class Scheduler:
    """Schedules for one dashboard; safe to use from any thread."""

    def __init__(
        self,
        store: Store,
        clock: AnchoredTime,
        registry: NodeRegistry,
        jobs: SlurmJobs,
        lost_after_s: float,
        runs_changed: Callable[[Sequence[str]], None],
    ) -> None:
        """`runs_changed` gets the ids of the runs that were placed, or whose reason to wait changed."""
        self._store, self._clock, self._registry, self._jobs = store, clock, registry, jobs
        self._lost_after_s, self._runs_changed = lost_after_s, runs_changed
        self._turns = QueueTurns(self._place_queue, clock.time)
        self._is_queue_long = False

    def schedule(self) -> None:
        """Allocate free devices to queued runs; on return it has been done."""
        self._turns.wait()

    def schedule_in_turn(self) -> None:
        """Schedule after what many may do at once; if scheduling is slow, a later tick does it."""
        self._turns.wait(only_if_due=True)

    def schedule_launch(self) -> None:
        """Schedule after a launch: at once, or where a long queue is before it by the next tick."""
        if not self._is_queue_long:
            self.schedule()

    def _place_queue(self) -> None:
        with acting.on_behalf(None, "scheduler"), self._store.alone("scheduling"):
            self._registry.write_down()
            length = queue_placement.queue_length(self._store)
            self._is_queue_long = length > LONG_QUEUE
            if not length:
                return
            self._jobs.give_out()
            now, lost_after_s = self._clock(), self._lost_after_s
            changed = new_attempt.choose_awaited(self._store, now, lost_after_s)
            changed += queue_placement.place_queue(self._store, now, lost_after_s=lost_after_s)
        self._runs_changed(list(dict.fromkeys(changed)))


LONG_QUEUE = 200
"""Behind more waiting runs a launch does not wait for a turn of its own: the next one may come a second later."""

# Runs the scheduler one turn at a time for all who ask, and limits how often slow turns repeat.

SCHEDULING_SHARE = 0.05
"""Share of one core for scheduling after reports: a large queue is not read for every one of them."""
SHORT_SCHEDULING_S = 0.03


class QueueTurns:
    """Shares and limits turns of the scheduler; safe to use from any thread."""

    def __init__(self, take_turn: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._take_turn, self._clock = take_turn, clock
        self._turn, self._counting = threading.Lock(), threading.Lock()
        self.asked = self._served = 0
        """How often a caller has waited for a turn."""
        self._due_from = 0.0

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last turn, given its cost, for a turn that nobody waits for."""
        return self._clock.now() >= self._due_from

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
                self._due_from = self._clock.now() + pause_s
