"""The deletion of runs: at once for everybody, after some days for good, and undone until then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from dashboard.live.hub import Hub
from dashboard.settings import DAY_S
from dashboard.snapshots.stored_snapshots import Snapshots
from dashboard.storage.files import Files
from dashboard.storage.wheels import Wheels
from db import acting
from db.engine import Store
from db.runs import deletion
from db.runs.deletion import DeletedRun, Erased
from domain.people.roles import Action

log = logging.getLogger("rankzero")
SWEEP_EVERY_S = 60.0
"""Pause between two looks for runs that are due, while none is."""


class Deletion(NamedTuple):
    """What a deletion frees, and until when it can be undone."""

    freed_bytes: int
    """Free at once, or else from `kept_until` on."""
    kept_until: float | None
    """Seconds since the epoch; None: the run is gone for good."""


class Deletions:
    """The deleted runs of one store; safe to use from any thread."""

    def __init__(
        self,
        store: Store,
        files: Files,
        snapshots: Snapshots,
        wheels: Wheels,
        hub: Hub,
        clock: Callable[[], float],
        kept_days: float,
    ) -> None:
        self._store, self._files, self._snapshots, self._wheels, self._hub = store, files, snapshots, wheels, hub
        self._clock, self._kept_s, self._sweep_from = clock, kept_days * DAY_S, 0.0
        self.kept_days = kept_days

    def delete(self, run_id: str, at_once: bool = False) -> Deletion:
        """Delete an ended run; `at_once` for good, which only admins may. Raises NoSuchRun, WrongState, Denied."""
        now = self._clock()
        if at_once or not self._kept_s:
            action = Action.ERASE if at_once else Action.ACT
            result = Deletion(self._remove(deletion.erase(self._store, run_id, now, action)), None)
        else:
            result = Deletion(deletion.delete(self._store, run_id, now), now + self._kept_s)
            log.info("run %s deleted by %s; its files stay for now", run_id, acting.rights().by)
        self._hub.publish(run_id, {"type": "deleted"})
        return result

    def restore(self, run_id: str) -> None:
        """Restore a deleted run whose files are still here. Raises NoSuchRun, Denied."""
        deletion.restore(self._store, run_id, self._clock())
        log.info("run %s restored by %s", run_id, acting.rights().by)

    def erase(self, run_id: str) -> Deletion:
        """Free the disk of a deleted run before its time. Raises NoSuchRun, Denied."""
        return Deletion(self._remove(deletion.erase(self._store, run_id, self._clock(), is_deleted=True)), None)

    def deleted(self) -> list[DeletedRun]:
        """The deleted runs of the projects in which the actor is a member, the newest deletions first."""
        return deletion.deleted_runs(self._store)

    def kept_until(self, run: DeletedRun) -> float:
        """When a deleted run goes for good, in seconds since the epoch."""
        return run.deleted_at + self._kept_s

    def sweep(self) -> None:
        """End what trains for a deleted run, and erase the next one that is due; called once a second."""
        now = self._clock()
        if ending := deletion.end_deleted(self._store, now):
            self._hub.desired_state_of_runs_changed(ending)
        if now < self._sweep_from:
            return
        if erased := deletion.erase_due(self._store, now - self._kept_s, now):
            self._remove(erased)
        else:
            self._sweep_from = now + SWEEP_EVERY_S

    def _remove(self, erased: Erased) -> int:
        """Remove the files of an erased run; returns their bytes."""
        self._files.remove(erased.file_ids, erased.checkpoint_ids)
        self._snapshots.forget_unused()
        self._wheels.forget_locks(erased.run_id)
        log.info("run %s deleted for good", erased.run_id)
        return erased.freed_bytes
