"""Judge a run's checkpoints by a retention rule, and delete those that it lets go."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from db.attempts.deliveries import are_sent
from db.attempts.new_attempt import rollbacks_of
from db.checkpoints import retention_rules
from db.checkpoints.checkpoint_queries import listed, with_steps
from db.checkpoints.deleted_checkpoints import mark_deleted
from db.checkpoints.inferred_steps import LoggedPoints
from db.checkpoints.needed import is_shared, needed
from db.engine import Store
from db.exceptions import NoSuchRun
from db.lookups import add_history
from db.metrics.points import series_of
from db.metrics.series_names import name_of
from db.models import Attempt, Checkpoint, Run, Series
from db.people import audit
from domain.checkpoint_use.retention import (
    LoggedMetric,
    Metrics,
    RetentionClauses,
    Save,
    SavedCheckpoint,
    kept,
    saves_of,
    text_of,
)
from domain.checkpoint_use.retention_views import JudgedCheckpoint, RunPlan
from domain.messages import SCRIPT_KINDS, TERMINAL_STATES
from domain.people.audit import AuditAction
from domain.recovery import is_left_behind
from domain.text.formats import as_list, plural, size
from domain.views import CheckpointView

MOST_NAMED = 4


def plan(store: Store, run_id: str, now: float, rule: RetentionClauses | None) -> RunPlan:
    """Judge a run's complete checkpoints, newest first, by a rule. Raises NoSuchRun."""
    with store.read() as session:
        return _plan(session, run_id, now, rule)


def present_plan(store: Store, run_id: str, now: float) -> RunPlan:
    """Judge a run's complete checkpoints by the rule that holds for it. Raises NoSuchRun."""
    with store.read() as session:
        run = session.get(Run, run_id)
        if run is None:
            raise NoSuchRun(f"There is no run {run_id!r}.")
        return _plan(session, run_id, now, retention_rules.stored(retention_rules.rule_for(session, run)))


def apply(store: Store, run_id: str, now: float) -> list[str]:
    """Delete what the rule of a run lets go; return the names. Raises NoSuchRun."""
    judged_plan = present_plan(store, run_id, now)
    if not judged_plan.gone:
        return []
    with store.write() as session:
        run = session.get(Run, run_id)
        if run is None or run.deleted_at is not None or retention_rules.rule_for(session, run).rule != judged_plan.rule:
            return []
        still_needed = needed(session, run_id)  # what was pinned or asked for meanwhile
        chosen = [one.id for one in judged_plan.gone if one.id not in still_needed]
        rows = session.scalars(
            select(Checkpoint).where(Checkpoint.id.in_(chosen), Checkpoint.complete, Checkpoint.deleted_at.is_(None))
        ).all()
        for row in rows:
            mark_deleted(row, now, by=None, why=judged_plan.rule)
        _write_down(session, run, rows, judged_plan.rule, now)
        return [row.path for row in rows]


def _write_down(session: Session, run: Run, rows: Sequence[Checkpoint], rule: str, now: float) -> None:
    if not rows:
        return
    names, freed_bytes = [row.path for row in rows], sum(row.size_bytes for row in rows)
    text = f"{plural(len(rows), 'checkpoint')} deleted by the rule {rule!r}: {as_list(names, MOST_NAMED)}"
    add_history(session, run.id, None, now, f"{text} ({size(freed_bytes)})")
    more = {"rule": rule, "checkpoints": len(rows), "size": size(freed_bytes)}
    audit.record_of_run(session, AuditAction.CHECKPOINT_DELETED, run, more)


def _plan(session: Session, run_id: str, now: float, rule: RetentionClauses | None) -> RunPlan:
    views, deleted = with_steps(session, run_id)
    saves = _saves(session, run_id, now, views)
    reasons = kept(rule, saves, _metrics(session, run_id, rule, [*views, *deleted]))
    why = {file.id: reason for save, reason in zip(saves, reasons, strict=True) for file in save.files}
    checkpoints = [JudgedCheckpoint(one.id, one.name, one.step, one.size_bytes, why[one.id]) for one in views]
    return RunPlan(run_id, text_of(rule), checkpoints)


def _saves(session: Session, run_id: str, now: float, views: Sequence[CheckpointView]) -> list[Save]:
    reasons, left = needed(session, run_id), rollbacks_of(session, run_id)
    if is_shared(session, run_id, now):
        marked = [view.id for view in listed(session, run_id) if view.latest or view.best]
        reasons = dict.fromkeys(marked, "a shared link shows its run") | reasons
    return saves_of(
        SavedCheckpoint(
            view.id, view.attempt, view.step, view.created_at, view.is_part, reasons.get(view.id),
            is_left_behind(left, view.attempt, view.step, view.created_at),
        )
        for view in views
    )  # fmt: skip


def _metrics(
    session: Session, run_id: str, rule: RetentionClauses | None, views: Collection[CheckpointView]
) -> Metrics:
    """Read the metrics that a rule names, by attempt; a metric that none logged is left out."""
    metrics = {best.metric for best in rule.best} if rule else set()
    if not metrics:
        return {}
    goes_on = or_(Attempt.state.not_in(TERMINAL_STATES), ~are_sent())  # its last points may still be on their way
    running = set(session.scalars(select(Attempt.number).where(Attempt.run_id == run_id, goes_on)))
    points: dict[str, dict[int, list[LoggedPoints]]] = {}
    query = (
        select(Attempt.number, Series)
        .join(Attempt, series_of(Attempt.fence))
        .where(Attempt.run_id == run_id, Series.source.in_(SCRIPT_KINDS), Series.node_rank == 0)
        .order_by(Series.id)
    )
    for attempt, series in session.execute(query):
        for metric in metrics & {series.tag, name_of(0, series.source, series.tag)}:
            lives = points.setdefault(metric, {}).setdefault(attempt, [])
            lives.append(LoggedPoints(session, series.id, series.count))
    saved: dict[int, list[int]] = {}
    for view in sorted(views, key=lambda view: view.step or 0):
        if view.step is not None:
            saved.setdefault(view.attempt, []).append(view.step)
    return {
        metric: {
            attempt: _logged(by_attempt.get(attempt, []), saved.get(attempt, []), goes_on=attempt in running)
            for attempt in saved.keys() & (by_attempt.keys() | running)
        }
        for metric, by_attempt in points.items()
    }


def _logged(lives: Sequence[LoggedPoints], saved: Sequence[int], *, goes_on: bool) -> LoggedMetric:
    """Join what an attempt's lives logged, the oldest first: what a later one repeats, counts."""
    by_step = dict(point for points in lives for point in points.by_step())
    finite = sorted((step, value) for step, value in by_step.items() if math.isfinite(value))
    return LoggedMetric([step for step, _ in finite], [value for _, value in finite], saved, goes_on)
