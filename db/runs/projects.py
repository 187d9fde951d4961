"""A project as a whole: its runs by state, its baseline and its best run, and its activity week by week."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuchProject
from db.models import Attempt, Run, Series, Task
from db.people.visibility import visible_runs
from db.runs.run_list import RunList, RunSelection
from db.runs.run_queries import baseline_of
from domain.messages import SCRIPT_KINDS, State
from domain.search.fields import RunColumn, SeriesFigure, Sort
from domain.search.query import FieldKind
from domain.series.goals import better_percent, goal, main_metric

WEEKS = 12
WEEK_S = 7 * 24 * 3600.0
FIRST_MONDAY = 4 * 24 * 3600.0
"""5 January 1970, 00:00 UTC."""


@dataclass
class Week:
    """What began and what trained in a week, from Monday 00:00 UTC."""

    began_at: float
    runs: Counter[State] = field(default_factory=Counter)
    """The runs that were created in it, by the state they are in now."""
    device_hours: float = 0.0


@dataclass(frozen=True)
class ChosenRun:
    """A run with its best value of the project's metric."""

    id: str
    name: str
    value: float | None


@dataclass(frozen=True)
class ProjectView:
    """A project; archived runs are left out."""

    name: str
    runs: dict[State, int]
    metric: str | None
    """The series that says how good a run is; None where no run has one with a known goal."""
    goal: str | None
    """min or max."""
    baseline: ChosenRun | None
    best: ChosenRun | None
    better_percent: float | None
    """By how much the best run is better than the baseline, in per cent of the baseline's value."""
    weeks: list[Week]
    """The last ones, the oldest first."""


class _Training(NamedTuple):
    devices: int
    placed_at: float
    ended_at: float


def exists(store: Store, name: str) -> bool:
    """Whether a run was ever in the project."""
    with store.read() as session:
        return _has_run(session, name)


def project(store: Store, name: str, now: float) -> ProjectView:
    """Return a project. Raises NoSuchProject where no run was ever in it."""
    with store.read() as session:
        if not _has_run(session, name):
            raise NoSuchProject(f"There is no project {name!r}: no run is in it.")
        runs, marked = RunList(session, RunSelection(project=name), now), baseline_of(session, name)
        metric = _metric(session, name, marked)
        baseline = None if marked is None else _chosen(runs, marked.id, marked.name, metric)
        best = _best(runs, metric)
        values = [None if one is None else one.value for one in (best, baseline)]
        return ProjectView(
            name=name,
            runs=dict(runs.counts()),
            metric=metric,
            goal=goal(metric) if metric else None,
            baseline=baseline,
            best=best,
            better_percent=better_percent(metric, *values) if metric else None,
            weeks=_weeks(session, name, now),
        )


def metric(store: Store, name: str) -> str | None:
    """The series by which the runs of a project are judged; None where no run has one with a known goal."""
    with store.read() as session:
        return _metric(session, name, baseline_of(session, name))


def _has_run(session: Session, name: str) -> bool:
    return session.scalar(select(Run.id).where(Run.project == name, visible_runs()).limit(1)) is not None


def _metric(session: Session, name: str, baseline: Run | None) -> str | None:
    """The main metric of the baseline; else of what at least half as many runs log as log anything with a goal."""
    own = _logged(session, name, baseline.id) if baseline else Counter[str]()
    if metric := main_metric(own):
        return metric
    counts = {tag: count for tag, count in _logged(session, name).items() if goal(tag)}
    return main_metric([tag for tag, count in counts.items() if 2 * count >= max(counts.values())])


def _logged(session: Session, name: str, run_id: str | None = None) -> Counter[str]:
    """The number of runs that log each series, of all or of one."""
    tag = case((Series.source == "events", Series.tag), else_=Series.source + "/" + Series.tag)
    query = select(tag, func.count(Attempt.run_id.distinct())).group_by(tag)
    query = query.join(Attempt, Attempt.fence == Series.fence).join(Run, Run.id == Attempt.run_id)
    query = query.where(
        visible_runs(), Run.project == name, Run.archived_at.is_(None) if run_id is None else Run.id == run_id
    )
    query = query.where(Series.node_rank == 0, Series.source.in_(SCRIPT_KINDS))
    return Counter({row[0]: row[1] for row in session.execute(query)})


def _best(runs: RunList, metric: str | None) -> ChosenRun | None:
    if metric is None:
        return None
    column = RunColumn(FieldKind.SERIES, metric, SeriesFigure.BEST)
    for run in runs.page(Sort(column, goal(metric) == "max"), 0, 1):
        chosen = _chosen(runs, run.id, run.name, metric)
        return chosen if chosen.value is not None else None
    return None


def _chosen(runs: RunList, run_id: str, name: str, metric: str | None) -> ChosenRun:
    if metric is None:
        return ChosenRun(run_id, name, None)
    values = runs.values([run_id], [RunColumn(FieldKind.SERIES, metric, SeriesFigure.BEST)])
    return ChosenRun(run_id, name, values[run_id][0])


def _weeks(session: Session, name: str, now: float) -> list[Week]:
    this_week = FIRST_MONDAY + (now - FIRST_MONDAY) // WEEK_S * WEEK_S
    first = this_week - (WEEKS - 1) * WEEK_S
    weeks = [Week(first + at * WEEK_S) for at in range(WEEKS)]
    listed = RunList(session, RunSelection(project=name), now)
    for created_at, state in listed.created_since(first):
        weeks[min(WEEKS - 1, int((created_at - first) // WEEK_S))].runs[state] += 1
    for training in _trainings(session, name, first, now):
        for week in weeks:
            shared_s = min(training.ended_at, week.began_at + WEEK_S) - max(training.placed_at, week.began_at)
            week.device_hours += training.devices * max(0.0, shared_s) / 3600
    return weeks


def _trainings(session: Session, name: str, since: float, now: float) -> Iterable[_Training]:
    query = (
        select(Task.devices, Attempt.placed_at, func.coalesce(Attempt.ended_at, now))
        .join(Attempt, Attempt.fence == Task.fence)
        .join(Run, Run.id == Attempt.run_id)
        .where(visible_runs(), Run.project == name, Run.archived_at.is_(None), Attempt.placed_at.is_not(None))
        .where(func.coalesce(Attempt.ended_at, now) > since)
    )
    for devices, placed_at, ended_at in session.execute(query):
        yield _Training(len(devices), placed_at, ended_at)
