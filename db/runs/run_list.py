"""The list of runs: those that a selection lists, counted, ordered and read a window at a time, with their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, union
from sqlalchemy.orm import Session, aliased

from db.engine import Store
from db.models import Attempt, File, Run, Series
from db.people.visibility import visible_runs
from db.runs import run_queries, run_views
from db.search import run_search
from db.search.run_search import value_of
from domain.messages import LIVE_STATES, State
from domain.search.fields import RunColumn, Sort
from domain.search.query import EVERYTHING, Query
from domain.views import FAILED_LATELY_S, FileView, RunView

_AnyAttempt, _AnyRun = aliased(Attempt), aliased(Run)


@dataclass(frozen=True)
class RunSelection:
    """The runs to list: those that match the search and the other limits given."""

    query: Query = EVERYTHING
    """Archived runs are listed only where the search mentions `archived`."""
    text: str = ""
    """Looked for in id, name, project and target."""
    states: Collection[State] = ()
    project: str = ""


class RunList:
    """The runs of a selection, as one read transaction sees them."""

    def __init__(self, session: Session, selection: RunSelection, now: float) -> None:
        self._session, self._selection, self._now = session, selection, now

    def total(self) -> int:
        """The number of runs."""
        query = self._listed(func.count())
        if self._selection.query == EVERYTHING and not self._selection.states:
            # No condition looks at attempts: without them it is ten times as fast.
            query = select(func.count()).select_from(Run).where(*self._conditions())
        count: int = self._session.scalars(query).one()
        return count

    def counts(self) -> Counter[State]:
        """The number of runs in each state."""
        return self._counted(self._listed(Attempt.state, func.count()))

    def not_ended(self) -> Counter[State]:
        """The number of runs in each state that is no end; found by their states, which few have."""
        few = Attempt.state.in_([state for state in State if not state.is_terminal])
        counted: list[Any] = [Attempt.state, func.count()]
        query = select(*counted).join(Run, Run.id == Attempt.run_id)
        return self._counted(query.where(few, Attempt.fence == _newest_fence(), *self._conditions()))

    def created_since(self, since: float) -> list[tuple[float, State]]:
        """The time of creation and the state of each run that was created from then on."""
        query = self._listed(Run.created_at, Attempt.state).where(Run.created_at >= since)
        return [(created_at, State(state)) for created_at, state in self._session.execute(query)]

    def urgent(self, limit: int) -> list[RunView]:
        """Pinned and live runs, and those that may need attention: a few of many."""
        since = self._now - FAILED_LATELY_S
        lately = Attempt.ended_at > since
        broken = select(Series.id).where(Series.fence == Attempt.fence, Series.not_finite_since.is_not(None))
        is_urgent = or_(
            Attempt.state.in_(LIVE_STATES),
            Run.pinned_at.is_not(None),
            and_(lately, Attempt.state == State.FAILED),
            and_(lately, Attempt.state == State.SUCCEEDED, broken.exists()),
        )
        # Found by indexes first: a search then looks at these few runs only.
        few = union(
            select(_AnyAttempt.run_id).where(_AnyAttempt.state.in_(LIVE_STATES)),
            select(_AnyAttempt.run_id).where(_AnyAttempt.ended_at > since),
            select(_AnyRun.id).where(_AnyRun.pinned_at.is_not(None)),
        )
        urgent = self._listed(Attempt.fence).where(Run.id.in_(few), is_urgent)
        return self.views(self._window(urgent, None, 0, limit))

    def page(self, sort: Sort | None, offset: int, limit: int, only: Collection[str] | None = None) -> list[RunView]:
        """Runs from the offset on, newest first or sorted; `only` some by their ids."""
        return self.views(self.fences(sort, offset, limit, only=only))

    def views(self, fences: Sequence[int]) -> list[RunView]:
        """The runs with these latest attempts, in the same order."""
        return run_views.views(self._session, fences, self._now)

    def fences(
        self,
        sort: Sort | None,
        offset: int,
        limit: int,
        states: Collection[State] = (),
        without: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> Sequence[int]:
        """The latest attempts of runs as `page` has them; `without` some and `only` some by their ids."""
        query = self._listed(Attempt.fence)
        if states:
            query = query.where(Attempt.state.in_(states))
        if without:
            query = query.where(Run.id.not_in(without))
        if only is not None:
            query = query.where(Run.id.in_(only))
        return self._window(query, sort, offset, limit) if limit > 0 else []

    def ids(self, sort: Sort | None, limit: int) -> list[str]:
        """The ids of the runs, newest first or sorted."""
        query = self._listed(Run.id).order_by(*run_search.in_order(sort, self._now)).limit(limit)
        return list(self._session.scalars(query))

    def older(self, than: tuple[float, str] | None, limit: int) -> list[Run]:
        """Runs, newest first, from the one after this time of creation and id on."""
        query = self._listed(Run).order_by(*run_search.in_order(None, self._now)).limit(limit)
        if than is not None:
            created_at, run_id = than
            is_same_time = and_(Run.created_at == created_at, Run.id > run_id)
            query = query.where(or_(Run.created_at < created_at, is_same_time))
        return list(self._session.scalars(query))

    def baselines(self, projects: Collection[str]) -> dict[str, str]:
        """The id of the baseline of each of these projects that has one."""
        marked = select(Run.project, Run.id).where(Run.project.in_(projects), Run.baseline_at.is_not(None))
        query = marked.where(visible_runs())
        return {row.project: row.id for row in self._session.execute(query)}

    def values(self, run_ids: Collection[str], columns: Sequence[RunColumn]) -> dict[str, list[Any]]:
        """The values of these columns by the runs' ids."""
        if not (columns and run_ids):
            return {run_id: [] for run_id in run_ids}
        expressions = [value_of(column, self._now).label(f"c{at}") for at, column in enumerate(columns)]
        selected: list[Any] = [Run.id, *expressions]
        query = _with_latest_attempt(select(*selected)).where(Run.id.in_(run_ids))
        return {row[0]: list(row[1:]) for row in self._session.execute(query)}

    def _counted(self, query: Select[Any]) -> Counter[State]:
        rows = self._session.connection().execute(query.group_by(Attempt.state))
        return Counter({State(state): count for state, count in rows})

    def _window(self, query: Select[Any], sort: Sort | None, offset: int, limit: int) -> Sequence[int]:
        # Sorted without their rows: a sort of ten thousand carries what is selected.
        ordered = query.order_by(*run_search.in_order(sort, self._now)).offset(offset).limit(limit)
        return self._session.connection().scalars(ordered).all()

    def _listed(self, *columns: Any) -> Select[Any]:
        return _with_latest_attempt(select(*columns)).where(*self._conditions())

    def _conditions(self) -> list[ColumnElement[bool]]:
        selection = self._selection
        conditions = [visible_runs(), run_search.matches(selection.query, self._now)]
        if not selection.query.mentions("archived"):
            conditions.append(Run.archived_at.is_(None))
        if selection.states:
            conditions.append(Attempt.state.in_([*selection.states]))
        if selection.project:
            conditions.append(Run.project == selection.project)
        if selection.text:
            conditions.append(run_queries.has_text(selection.text))
        return conditions


def _with_latest_attempt(query: Select[Any]) -> Select[Any]:
    # By run: a list that ends after a window then looks at the attempts of that window only.
    return query.select_from(Run).join(Attempt, Attempt.fence == _newest_fence())


def _newest_fence() -> ColumnElement[int]:
    return select(func.max(_AnyAttempt.fence)).where(_AnyAttempt.run_id == Run.id).scalar_subquery()


def listed(
    store: Store, now: float, selection: RunSelection, sort: Sort | None, limit: int, offset: int = 0
) -> list[RunView]:
    """A window of the list, newest first or sorted."""
    with store.read() as session:
        return RunList(session, selection, now).page(sort, offset, limit)


def values(store: Store, now: float, run_ids: Collection[str], columns: Sequence[RunColumn]) -> dict[str, list[Any]]:
    """The values of these columns by the runs' ids."""
    with store.read() as session:
        return RunList(session, RunSelection(), now).values(run_ids, columns)


def projects(store: Store) -> list[str]:
    """The names of all projects with runs that the visitor sees."""
    with store.read() as session:
        return list(session.scalars(select(Run.project).where(visible_runs()).distinct().order_by(Run.project)))


def has_launched(store: Store, person: str) -> bool:
    """Whether a run is of this person, be it deleted or in a project that they see no longer."""
    with store.read() as session:
        return session.scalar(select(Run.id).where(Run.by == person).limit(1)) is not None


# The log files of many runs, a few runs at a time.


@dataclass
class RunLogs:
    """A run and the files below the `logs/` of its attempts, oldest attempt first."""

    id: str
    name: str
    created_at: float
    files: list[FileView] = field(default_factory=list)


def run_logs(
    store: Store, selection: RunSelection, now: float, than: tuple[float, str] | None, limit: int
) -> list[RunLogs]:
    """Return the logs of the next selected runs, newest first, after this time of creation and id."""
    with store.read() as session:
        older = RunList(session, selection, now).older(than, limit)
        runs = {run.id: RunLogs(run.id, run.name, run.created_at) for run in older}
        query = (
            select(Attempt.run_id, Attempt.number, File)
            .join(File, File.fence == Attempt.fence)
            .where(Attempt.run_id.in_(runs), File.path.startswith("logs/"))
            .order_by(File.fence, File.node_rank, File.path, File.generation)
        )
        for run_id, number, file in session.execute(query):
            view = FileView(file.id, number, file.node_rank, file.path, file.generation, file.size_bytes)
            runs[run_id].files.append(view)
    return list(runs.values())


def run_count(store: Store, selection: RunSelection, now: float) -> int:
    """Return the number of selected runs."""
    with store.read() as session:
        return RunList(session, selection, now).total()
