"""Read runs and their histories as pages and the API show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import ColumnElement, bindparam, func, or_, select

from db.attempts.attempt_queries import attempt_changes
from db.engine import Store
from db.exceptions import NoSuchRun
from db.models import Attempt, HistoryEntry, Run
from db.runs.baselines import against_baseline
from db.runs.run_views import views
from domain.messages import State
from domain.views import HistoryView, RunView

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


def history(store: Store, run_id: str) -> list[HistoryView]:
    """The lines of a run's history, oldest first."""
    query = select(HistoryEntry).where(HistoryEntry.run_id == run_id).order_by(HistoryEntry.id)
    with store.read() as session:
        return [HistoryView(row.at, row.attempt, row.text) for row in session.scalars(query)]
