"""The deletion of runs: at once for everybody, after some days for good, and undone until then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from dashboard.live.hub import Hub
from dashboard.settings import DAY_S
from dashboard.snapshots.keeping import Snapshots
from dashboard.storage.files import Files
from dashboard.storage.wheels import Wheels
from db import acting
from db.engine import Store
from db.exceptions import NoSuchRun
from db.people.ownership import owned_run
from db.runs import deletion
from db.runs.deletion import DeletedRun
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
        if at_once:
            self._check_manages(run_id)
        if at_once or not self._kept_s:
            result = Deletion(self._erase(run_id), None)
        else:
            now = self._clock()
            result = Deletion(deletion.delete(self._store, run_id, now), now + self._kept_s)
            log.info("run %s deleted by %s; its files stay for now", run_id, acting.rights().by)
        self._hub.publish(run_id, {"type": "deleted"})
        return result

    def restore(self, run_id: str) -> None:
        """Bring back a deleted run whose files are still here. Raises NoSuchRun, Denied."""
        self._check_manages(run_id, is_deleted=True)
        deletion.restore(self._store, run_id, self._clock())
        log.info("run %s brought back by %s", run_id, acting.rights().by)

    def erase(self, run_id: str) -> Deletion:
        """Free the disk of a deleted run before its time. Raises NoSuchRun, Denied."""
        self._check_manages(run_id, is_deleted=True)
        return Deletion(self._erase(run_id), None)

    def may_restore(self, run_id: str) -> bool:
        """Whether the actor may bring this run back once it is deleted."""
        run = owned_run(self._store, run_id)
        return run is not None and acting.rights().may(Action.RESTORE, run.project)

    def deleted(self) -> list[DeletedRun]:
        """The deleted runs that the actor may bring back, the newest deletions first."""
        return deletion.deleted_runs(self._store)

    def kept_until(self, run: DeletedRun) -> float:
        """When a deleted run goes for good, in seconds since the epoch."""
        return run.deleted_at + self._kept_s

    def sweep(self) -> None:
        """Erase the next run that is due; called once a second."""
        if (now := self._clock()) < self._sweep_from:
            return
        if run_id := deletion.due(self._store, now - self._kept_s):
            self._erase(run_id)
        else:
            self._sweep_from = now + SWEEP_EVERY_S

    def _erase(self, run_id: str) -> int:
        erased = deletion.erase(self._store, run_id, self._clock())
        self._files.remove(erased.file_ids, erased.checkpoint_ids)
        self._snapshots.forget_unused()
        self._wheels.forget_locks(run_id)
        log.info("run %s deleted for good", run_id)
        return erased.freed_bytes

    def _check_manages(self, run_id: str, is_deleted: bool = False) -> None:
        """Raises NoSuchRun where there is no such run for the actor, Denied."""
        run, rights = owned_run(self._store, run_id), acting.rights()
        if run is None or run.is_deleted != is_deleted or (run.project is not None and not rights.sees(run.project)):
            raise NoSuchRun(f"There is no {'deleted ' if is_deleted else ''}run {run_id!r}.")
        rights.check(Action.RESTORE, run.project)
