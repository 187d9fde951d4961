"""Checkpoints kept on purpose: retention rules applied in small steps, and the bin of what was deleted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from dashboard.live.hub import Hub
from dashboard.settings import DAY_S
from dashboard.storage.files import Files
from db import acting
from db.checkpoints import checkpoint_queries, deleted_checkpoints, retention, retention_rules
from db.checkpoints.deleted_checkpoints import Erasable
from db.engine import Store
from db.exceptions import NoSuchRun
from domain.checkpoint_use.retention import parse
from domain.checkpoint_use.retention_views import PlanTotals, RuleView, RunPlan, totals_of
from domain.people.roles import Action
from domain.views import CheckpointView

log = logging.getLogger("rankzero")
ALL_EVERY_S = 600.0
"""Pause between two looks at all runs with a rule: what kept a checkpoint from deletion may have ended."""
ERASE_EVERY_S = 60.0


class Retention:
    """The rules of one store and its bin; safe to use from any thread."""

    def __init__(self, store: Store, files: Files, hub: Hub, clock: Callable[[], float], kept_days: float) -> None:
        self._store, self._files, self._hub, self._clock = store, files, hub, clock
        self._kept_s = kept_days * DAY_S
        self._due: dict[str, None] = {}
        self._lock = threading.Lock()
        self._all_from = self._erase_from = 0.0

    # -- rules ---------------------------------------------------------------------------------

    def of_run(self, run_id: str) -> tuple[RuleView, RunPlan]:
        """The rule that holds for a run, and what it keeps and lets go. Raises NoSuchRun, Denied."""
        view = retention_rules.of_run(self._store, run_id)
        return view, retention.plan(self._store, run_id, self._clock(), retention_rules.stored(view))

    def of_project(self, project: str) -> RuleView:
        """The rule of a project; a hidden one has none."""
        return retention_rules.of_project(self._store, project)

    def plan_for_run(self, run_id: str, text: str | None) -> RunPlan:
        """Judge a run by a rule that is not set; None: by its project's. Raises NoSuchRun, InvalidRequest."""
        rule = (
            retention_rules.stored(retention_rules.of_project_of(self._store, run_id)) if text is None else parse(text)
        )
        return retention.plan(self._store, run_id, self._clock(), rule)

    def change_project(self, project: str, text: str | None, *, is_dry_run: bool) -> tuple[RuleView, PlanTotals]:
        """Set or remove the rule of a project, and say what it deletes; a dry run says it alone.

        Raises InvalidRequest, Denied."""
        acting.rights().check(Action.MANAGE, project)
        totals = self.plan_for_project(project, text)
        view = self.of_project(project) if is_dry_run else self.set_for_project(project, text)
        return view, totals

    def plan_for_project(self, project: str, text: str | None) -> PlanTotals:
        """Count what a rule would delete of a project's runs without their own. Raises InvalidRequest, Denied."""
        runs = retention_rules.runs_under_project(self._store, project)
        rule = None if text is None else parse(text)
        return totals_of([retention.plan(self._store, run_id, self._clock(), rule) for run_id in runs])

    def set_for_run(self, run_id: str, text: str | None) -> RuleView:
        """Set a run's own rule; None: its project's holds again. Raises InvalidRequest, NoSuchRun, Denied."""
        view = retention_rules.set_for_run(self._store, run_id, text, self._clock())
        self.judge_soon([run_id])
        self._announce(run_id)
        return view

    def set_for_project(self, project: str, text: str | None) -> RuleView:
        """Set or remove the rule of a project. Raises InvalidRequest, Denied."""
        view = retention_rules.set_for_project(self._store, project, text, self._clock())
        self.judge_soon(retention_rules.ruled_runs(self._store, project))
        return view

    # -- single checkpoints --------------------------------------------------------------------

    def pin(self, checkpoint_id: int, *, is_pinned: bool = True) -> str:
        """Pin or unpin a checkpoint; return its run's id. Raises NoSuchCheckpoint, WrongState, Denied."""
        run_id = deleted_checkpoints.pin(self._store, checkpoint_id, self._clock(), is_pinned=is_pinned)
        if not is_pinned:
            self.judge_soon([run_id])
        return self._announce(run_id)

    def delete(self, checkpoint_id: int) -> str:
        """Delete a checkpoint; return its run's id. Raises NoSuchCheckpoint, WrongState, Denied."""
        run_id = deleted_checkpoints.delete(self._store, checkpoint_id, self._clock())
        self._erase_from = 0.0
        return self._announce(run_id)

    def restore(self, checkpoint_id: int) -> str:
        """Bring a deleted checkpoint back, pinned; return its run's id. Raises NoSuchCheckpoint, WrongState, Denied."""
        return self._announce(deleted_checkpoints.restore(self._store, checkpoint_id, self._clock()))

    def deleted(self, run_id: str) -> list[CheckpointView]:
        """A run's deleted checkpoints that can be restored, newest first."""
        return checkpoint_queries.deleted_checkpoints(self._store, run_id)

    def kept_until(self, checkpoint: CheckpointView) -> float | None:
        """When a deleted checkpoint goes for good, in seconds since the epoch."""
        return None if checkpoint.deleted_at is None else checkpoint.deleted_at + self._kept_s

    def empty_bin(self) -> int:
        """Erase deleted checkpoints before their time, of the projects whose admin the actor is; return the bytes."""
        freed_bytes = 0
        while (erasable := deleted_checkpoints.empty_bin(self._store, self._clock())).ids:
            self._remove(erasable)
            freed_bytes += erasable.freed_bytes
        return freed_bytes

    # -- in the background ---------------------------------------------------------------------

    def judge_soon(self, run_ids: Iterable[str]) -> None:
        """Apply the rules of these runs in the next seconds, one run a second."""
        with self._lock:
            self._due |= dict.fromkeys(run_ids)

    def sweep(self) -> None:
        """Apply the rule of the next run that is due, and erase what has been in the bin for long enough."""
        now = self._clock()
        if now >= self._all_from:
            self._all_from = now + ALL_EVERY_S
            self.judge_soon(retention_rules.ruled_runs(self._store))
        if (run_id := self._next()) is not None:
            self._apply(run_id, now)
        if now >= self._erase_from:
            self._erase_from = now + ERASE_EVERY_S
            self._erase_due(now)

    def _next(self) -> str | None:
        with self._lock:
            run_id = next(iter(self._due), None)
            if run_id is not None:
                del self._due[run_id]
            return run_id

    def _apply(self, run_id: str, now: float) -> None:
        try:
            names = retention.apply(self._store, run_id, now)
        except NoSuchRun:
            return
        if names:
            log.info("run %s: %d checkpoints deleted by its retention rule", run_id, len(names))
            self._erase_from = 0.0 if self._kept_s == 0 else self._erase_from
            self._announce(run_id)

    def _erase_due(self, now: float) -> None:
        """Erase some of what is due; a file that cannot be removed stays due, and holds up nothing else."""
        erasable = deleted_checkpoints.erase_due(self._store, now - self._kept_s, now)
        try:
            self._remove(erasable)
        except OSError as error:
            log.warning("deleted checkpoints could not be erased, which is tried again: %s", error)
        else:
            self._erase_from = 0.0 if erasable.ids else self._erase_from

    def _remove(self, erasable: Erasable) -> None:
        if erasable.ids:
            self._files.remove([], erasable.ids)
            deleted_checkpoints.removed(self._store, erasable.ids)
            log.info("%d deleted checkpoints erased for good", len(erasable.ids))

    def _announce(self, run_id: str) -> str:
        messages: list[dict[str, Any]] = [{"type": "checkpoints"}, {"type": "history"}]
        for message in messages:
            self._hub.publish(run_id, message)
        return run_id
