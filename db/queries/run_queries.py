"""Queries that return plain frozen objects for pages, the API and workers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, or_, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics import points
from db.metrics.curves import series, series_names, series_sources
from db.metrics.series_names import VALIDATION_LOSS, main_loss
from db.models import Attempt, Checkpoint, File, HistoryEntry, Node, Run, Series, Task
from db.queries.attempt_changes import attempt_changes
from db.queries.baselines import against_baseline
from db.queries.node_queries import nodes
from db.queries.run_views import views
from db.records.exceptions import NoSuchRun
from db.records.liveness import last_heartbeat
from db.records.lookups import attempt_spec
from domain.masking import masked_args, masked_changes, masked_env
from domain.messages import LIVE_STATES, SCRIPT_KINDS, TERMINAL_STATES, State
from domain.recovery.rank_files import SavedFile, rank_0s
from domain.scheduling import resizing
from domain.views import AttemptView, CheckpointView, FileView, HistoryView, LiveAttempt, RunView, TaskView

__all__ = [
    "attempts", "checkpoint_file", "checkpoints", "files", "history", "nodes", "run", "runs",
    "series", "series_names", "series_sources",
]  # fmt: skip

_NAME_AND_STATE = (
    select(Run.name, Attempt.state)
    .join(Attempt, Attempt.run_id == Run.id)
    .where(Run.id == bindparam("run_id"))
    .order_by(Attempt.number.desc())
    .limit(1)
)


def runs(
    store: Store,
    now: float,
    states: Iterable[State] | None = None,
    text: str | None = None,
    project: str | None = None,
    limit: int = 200,
) -> list[RunView]:
    """Runs, newest first; `text` is searched in id, name, project and target."""
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    query = select(Attempt.fence).join(Run, Run.id == Attempt.run_id).where(Attempt.fence.in_(newest))
    if states is not None:
        query = query.where(Attempt.state.in_([*states]))
    if project:
        query = query.where(Run.project == project)
    if text:
        query = query.where(has_text(text))
    with store.read() as session:
        query = query.order_by(Run.created_at.desc(), Run.id).limit(limit)
        return views(session, session.scalars(query).all(), now)


def has_text(text: str) -> ColumnElement[bool]:
    """Whether the text is part of a run's id, name, project or target."""
    searched = (Run.id, Run.name, Run.project, Run.spec["target"].as_string())
    return or_(*(column.icontains(text, autoescape=True) for column in searched))


def run(store: Store, run_id: str, now: float) -> RunView | None:
    """One run; None when it does not exist."""
    newest = select(func.max(Attempt.fence)).where(Attempt.run_id == run_id)
    with store.read() as session:
        fence = session.scalar(newest)
        if fence is None:
            return None
        (view,) = views(session, [fence], now)
        starts = attempt_changes(session, run_id, view.spec) if view.attempt > 1 else []
        return replace(view, attempt_changes=starts, against_baseline=against_baseline(session, view))


def name_and_state(store: Store, run_id: str) -> tuple[str, State]:
    """Return the name and state of a run without reading the rest, for the answer to its launch. Raises NoSuchRun."""
    with store.read() as session:
        row = session.execute(_NAME_AND_STATE, {"run_id": run_id}).first()
    if row is None:
        raise NoSuchRun(f"There is no run {run_id!r}.")
    return row[0], State(row[1])


def live_attempts(store: Store) -> list[LiveAttempt]:
    """Live attempts with the last heartbeat of their most silent node; a small query, because it runs every second."""
    query = (
        select(Attempt.run_id, Attempt.number, Attempt.fence, Node.id, Node.last_seen)
        .join(Task, Task.fence == Attempt.fence)
        .join(Node, Node.id == Task.node_id)
        .where(Attempt.state.in_(LIVE_STATES), Task.state.not_in(TERMINAL_STATES))
    )
    heartbeats: dict[tuple[str, int, int], float] = {}
    with store.read() as session:
        for run_id, number, fence, node_id, last_seen in session.execute(query):
            key, at = (run_id, number, fence), last_heartbeat(session, node_id, last_seen)
            heartbeats[key] = min(at, heartbeats.get(key, at))
    return [LiveAttempt(*key, at) for key, at in heartbeats.items()]


def attempts(store: Store, run_id: str) -> list[AttemptView]:
    """A run's attempts, oldest first, with their parts."""
    with store.read() as session:
        rows = session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number))
        return [_attempt_view(session, attempt) for attempt in rows]


def checkpoints(store: Store, run_id: str) -> list[CheckpointView]:
    """A run's checkpoints, newest first, including those still being uploaded."""
    query = (
        select(Checkpoint, Attempt.number)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .where(Attempt.run_id == run_id)
        .order_by(Checkpoint.fence.desc(), Checkpoint.written_at.desc(), Checkpoint.id.desc())
    )
    with store.read() as session:
        views = [_checkpoint_view(session, row, number) for row, number in session.execute(query)]
    return _marked(views)


def checkpoint_file(store: Store, checkpoint_id: int) -> tuple[Checkpoint, str] | None:
    """A checkpoint's row and its run's id."""
    with store.read() as session:
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None:
            return None
        return checkpoint, session.get_one(Attempt, checkpoint.fence).run_id


def history(store: Store, run_id: str) -> list[HistoryView]:
    """The lines of a run's history, oldest first."""
    query = select(HistoryEntry).where(HistoryEntry.run_id == run_id).order_by(HistoryEntry.id)
    with store.read() as session:
        return [HistoryView(row.at, row.attempt, row.text) for row in session.scalars(query)]


def files(store: Store, run_id: str, attempt: int | None = None) -> list[FileView]:
    """Mirrored files of an attempt (default: all attempts)."""
    query = (
        select(File, Attempt.number)
        .join(Attempt, Attempt.fence == File.fence)
        .where(Attempt.run_id == run_id)
        .order_by(File.fence, File.node_rank, File.path, File.generation)
    )
    if attempt is not None:
        query = query.where(Attempt.number == attempt)
    with store.read() as session:
        return [
            FileView(f.id, number, f.node_rank, f.path, f.generation, f.size_bytes)
            for f, number in session.execute(query)
        ]


def run_of_attempt(store: Store, fence: int) -> str | None:
    """The run that an attempt belongs to."""
    with store.read() as session:
        return session.scalar(select(Attempt.run_id).where(Attempt.fence == fence))


def last_word(store: Store) -> float | None:
    """The time of the latest heartbeat of any node; None when there was none."""
    with store.read() as session:
        return session.scalar(select(func.max(Node.last_seen)))


def _attempt_view(session: Session, attempt: Attempt) -> AttemptView:
    parts = session.execute(
        select(Task, Node.name)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence == attempt.fence)
        .order_by(Task.node_rank)
    )
    origin = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    return AttemptView(
        fence=attempt.fence,
        number=attempt.number,
        state=State(attempt.state),
        reason=attempt.reason,
        message=attempt.message,
        next_step=attempt.next_step,
        error=attempt.error,
        created_at=attempt.created_at,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        resumed_from=origin.path if origin else None,
        world_size=resizing.effective(attempt_spec(session, attempt), attempt.changes).world_size,
        changes=masked_changes(attempt.changes),
        parts=[_part_view(part, node) for part, node in parts],
    )


def _part_view(part: Task, node: str) -> TaskView:
    return TaskView(
        node_rank=part.node_rank,
        node=node,
        devices=list(part.devices),
        state=State(part.state),
        pid=part.pid,
        argv=None if part.argv is None else masked_args(part.argv),
        env=None if part.env is None else masked_env(part.env),
        cwd=part.cwd,
        exit_code=part.exit_code,
        message=part.message,
        interpreter=_without_packages(part.interpreter),
    )


def _without_packages(interpreter: dict[str, Any] | None) -> dict[str, Any] | None:
    """The interpreter without its hundreds of packages, which only comparisons show."""
    return interpreter and {name: value for name, value in interpreter.items() if name != "packages"}


def _checkpoint_view(session: Session, row: Checkpoint, attempt: int) -> CheckpointView:
    loss_name, loss = _loss_at(session, row.fence, row.step)
    return CheckpointView(
        id=row.id,
        name=row.path,
        attempt=attempt,
        step=row.step,
        size_bytes=row.size_bytes,
        received_bytes=row.received_bytes,
        sha256=row.sha256,
        complete=row.complete,
        created_at=row.written_at,
        loss=loss,
        loss_name=loss_name,
        latest=False,
        best=False,
        prefix=row.prefix,
        trouble=row.trouble,
        is_asked_for_again=row.resend_requested_at is not None,
    )


def _loss_at(session: Session, fence: int, step: int | None) -> tuple[str | None, float | None]:
    """The validation loss logged at a step where there is one, else the training loss, and its name."""
    if step is None:
        return None, None
    query = select(Series).where(
        Series.fence == fence, Series.source.in_(SCRIPT_KINDS), Series.node_rank == 0
    )
    by_source: dict[str, dict[str, int]] = {}
    for row in session.scalars(query):
        by_source.setdefault(row.source, {})[row.tag] = row.id
    for by_tag in (by_source.get(source, {}) for source in SCRIPT_KINDS):
        for tag in (*VALIDATION_LOSS, main_loss(by_tag) or ""):
            value = points.value_at(session, by_tag[tag], step) if tag in by_tag else None
            if value is not None:
                return tag, value
    return None, None


def _of_rank_0(newest: CheckpointView, views: list[CheckpointView]) -> CheckpointView:
    """What rank 0 wrote at the same moment, where each rank writes its own: a resume begins with it."""
    files = {
        SavedFile(view.name, view.step, view.created_at): view
        for view in views
        if view.attempt == newest.attempt
    }
    return files[rank_0s(SavedFile(newest.name, newest.step, newest.created_at), [*files])]


def _marked(views: list[CheckpointView]) -> list[CheckpointView]:
    """Mark the latest, and the best by validation loss; a training loss covers one batch and says too little."""
    complete = [view for view in views if view.complete]
    newest = max(complete, key=lambda v: (v.attempt, v.step or -1, v.created_at), default=None)
    latest = newest and _of_rank_0(newest, complete)
    measured = [view for view in complete if view.loss is not None and math.isfinite(view.loss)]
    validated = [view for view in measured if view.loss_name in VALIDATION_LOSS]
    best = min(validated, key=lambda view: view.loss or 0.0, default=None)
    return [replace(view, latest=view is latest, best=view is best) for view in views]
