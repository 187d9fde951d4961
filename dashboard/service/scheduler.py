"""Takes turns of the scheduler: gives free devices to queued runs, and tells everybody concerned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dashboard.clock import Clock
from dashboard.cluster.registry import NodeRegistry
from dashboard.cluster.slurm_jobs import SlurmJobs
from dashboard.service.queue_turns import QueueTurns
from db.engine import Store
from db.scheduling import queue_placement

LONG_QUEUE = 200
"""Behind more waiting runs a launch does not wait for a turn of its own: the next one may come a second later."""


class Scheduler:
    """Schedules for one dashboard; safe to use from any thread."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        registry: NodeRegistry,
        jobs: SlurmJobs,
        lost_after_s: float,
        runs_changed: Callable[[Sequence[str]], None],
    ) -> None:
        """`runs_changed` gets the ids of the runs that were placed, or whose reason to wait changed."""
        self._store, self._clock, self._registry, self._jobs = store, clock, registry, jobs
        self._lost_after_s, self._runs_changed = lost_after_s, runs_changed
        self._turns = QueueTurns(self._place_queue)
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
        with self._store.alone("scheduling"):
            self._registry.write_down()
            self._jobs.give_out()
            length = queue_placement.queue_length(self._store)
            self._is_queue_long = length > LONG_QUEUE
            if not length:
                return
            changed = queue_placement.place_queue(self._store, self._clock(), lost_after_s=self._lost_after_s)
        self._runs_changed(changed)
