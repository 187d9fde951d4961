"""Read runs, by id or by what people call them, with their histories and their baseline."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import ColumnElement, bindparam, func, or_, select
from sqlalchemy.orm import Session

from db.attempts.attempt_queries import attempt_changes
from db.engine import Store
from db.exceptions import NoSuchRun
from db.metrics.curves import series_rows
from db.metrics.run_results import results_of
from db.models import Attempt, HistoryEntry, Run
from db.people.visibility import visible_runs
from db.runs.run_views import views
from db.watched import watched_runs
from domain.messages import SCRIPT_KINDS, State
from domain.series.goals import BaselineChange, better_percent, main_metric
from domain.views import HistoryView, RunView

_NAME_AND_STATE = (
    select(Run.name, Attempt.state)
    .join(Attempt, Attempt.run_id == Run.id)
    .where(Run.id == bindparam("run_id"), Run.deleted_at.is_(None))
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
    query = select(Attempt.fence).join(Run, Run.id == Attempt.run_id).where(Attempt.fence.in_(newest), visible_runs())
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
    """One run; None when it does not exist for the actor."""
    newest = select(func.max(Attempt.fence)).join(Run, Run.id == Attempt.run_id)
    newest = newest.where(Attempt.run_id == run_id, visible_runs())
    with store.read() as session:
        fence = session.scalar(newest)
        if fence is None:
            return None
        (view,) = views(session, [fence], now)
        starts = attempt_changes(session, run_id, view.spec) if view.attempt > 1 else []
        watched = view.watched and replace(view.watched, again=watched_runs.again(session, run_id))
        return replace(view, attempt_changes=starts, against_baseline=against_baseline(session, view), watched=watched)


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
        return [HistoryView(row.at, row.attempt, row.text, row.by, row.via) for row in session.scalars(query)]


# The baselines of projects, and how a run compares to its project's.


def baseline_of(session: Session, project: str) -> Run | None:
    """The baseline of a project; None where it has none."""
    marked = select(Run).where(Run.project == project, Run.baseline_at.is_not(None))
    return session.scalars(marked.where(visible_runs())).first()


def common_baseline(store: Store, run_ids: Collection[str]) -> str | None:
    """The baseline of the runs' projects; None where these have none or several."""
    projects = select(Run.project).where(Run.id.in_(run_ids))
    with store.read() as session:
        baselines = select(Run.id).where(Run.project.in_(projects), Run.baseline_at.is_not(None), visible_runs())
        ids = session.scalars(baselines.limit(2)).all()
    return ids[0] if len(ids) == 1 else None


def against_baseline(session: Session, run: RunView) -> BaselineChange | None:
    """The run's best value beside the baseline's; None for the baseline itself, and where there is none."""
    baseline = None if run.baseline else baseline_of(session, run.project)
    if baseline is None:
        return None
    ids = (run.id, baseline.id)
    rows = [row for row in series_rows(session, ids, sources=SCRIPT_KINDS) if row.node_rank == 0]
    own, other = ({row.name for row in rows if row.run_id == run_id} for run_id in ids)
    metric = main_metric(own & other)
    if metric is None:
        return BaselineChange(baseline.id, baseline.name, None, None, None, None)
    results = results_of(session, ids, [row for row in rows if row.name == metric])
    value, base = (results[run_id][metric].best for run_id in ids)
    change = better_percent(metric, value, base)
    return BaselineChange(baseline.id, baseline.name, metric, value, base, change)


# Find a run by what people call it: its id, `latest`, its name, or the beginning of its id.

LATEST = "latest"
MOST = 20
"""Runs of one name that are told apart for who asks."""


class NamedRun(NamedTuple):
    """A run that a word may mean."""

    id: str
    name: str


def named_runs(store: Store, name: str) -> list[NamedRun]:
    """Return the runs that `name` may mean, newest first, at most `MOST`; archived ones only by their id."""
    with store.read() as session:
        if name == LATEST:
            return _newest(session, limit=1)
        for condition in _readings(name):
            if runs := _newest(session, condition):
                return runs
    return []


def _readings(name: str) -> list[ColumnElement[bool]]:
    """The conditions under which a run is meant by a word, the most exact first."""
    listed = Run.archived_at.is_(None)
    readings = [Run.id == name, (Run.name == name) & listed]
    is_beginning = name != "" and name.isascii() and name.isalnum() and name == name.lower()
    return [*readings, Run.id.startswith(name) & listed] if is_beginning else readings


def _newest(session: Session, condition: ColumnElement[bool] | None = None, limit: int = MOST) -> list[NamedRun]:
    is_meant = Run.archived_at.is_(None) if condition is None else condition
    query = select(Run.id, Run.name).where(visible_runs(), is_meant)
    newest = query.order_by(Run.created_at.desc(), Run.id).limit(limit)
    return [NamedRun(*row) for row in session.execute(newest)]
