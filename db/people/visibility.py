"""The runs that exist for the actor: their own, and those of projects that are not hidden; none that was deleted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, case, not_, or_, select, true
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import Attempt, PrivateProject, Run
from domain.people.rights import Rights
from domain.scheduling.fit import SOME_RUN


class Visibility(NamedTuple):
    """What answers that are kept for several persons depend on."""

    only: frozenset[str] | None
    """The only projects that exist; None: all but the hidden ones."""
    hidden: frozenset[str]
    own: str | None = None
    """The person whose runs, sweeps and alerts exist in the other projects too; None: nobody."""
    own_project: str | None = None
    """The one project in which they do; None: in all."""


EVERYTHING = Visibility(None, frozenset())


def visibility(rights: Rights | None = None) -> Visibility:
    """The visibility of these rights, by default of the actor."""
    rights = rights or acting.rights()
    if rights.sees_everything:
        return EVERYTHING
    own = rights.by if rights.sees_own_hidden else None
    return Visibility(rights.only_projects, rights.hidden, own, rights.only_project)


def sees_everything() -> bool:
    """Whether no project is hidden from the actor."""
    return visibility() == EVERYTHING


def visible_runs(rights: Rights | None = None) -> ColumnElement[bool]:
    """The condition on runs that these rights, by default the actor's, may see."""
    return and_(Run.deleted_at.is_(None), is_visible(Run.project, Run.by, rights))


def is_visible(project: Any, by: Any, rights: Rights | None = None) -> ColumnElement[bool]:
    """The condition that what is in a project and is somebody's, columns or expressions, exists for these rights."""
    only, hidden, own, own_project = visibility(rights)
    conditions: list[ColumnElement[bool]] = [] if only is None else [project.in_(sorted(only))]
    if hidden:
        conditions.append(project.not_in(sorted(hidden)))
    in_seen = and_(true(), *conditions)
    if own is None or not conditions:
        return in_seen
    is_own = by.is_not_distinct_from(own)  # of nobody's things `=` would say NULL, and so would its negation
    return or_(in_seen, is_own if own_project is None else and_(is_own, project == own_project))


def visible_ids(store: Store, run_ids: Collection[str]) -> list[str]:
    """The runs of these that exist for the actor, in their order; all of them, unread, where nothing is hidden."""
    if sees_everything():
        return list(run_ids)
    with store.read() as session:
        visible = visible_among(session, run_ids)
    return [run_id for run_id in run_ids if run_id in visible]


def visible_among(session: Session, run_ids: Collection[str | None]) -> set[str]:
    """The runs of these that exist for the actor; all of them, unread, where nothing is hidden."""
    distinct = {run_id for run_id in run_ids if run_id is not None}
    if not distinct or sees_everything():
        return distinct
    return set(session.scalars(select(Run.id).where(Run.id.in_(distinct), visible_runs())))


def hidden_among(session: Session, run_ids: Collection[str | None]) -> set[str]:
    """The runs of these that are hidden from the actor; none, unread, where nothing is hidden."""
    distinct = {run_id for run_id in run_ids if run_id is not None}
    if not distinct or sees_everything():
        return set()
    return set(session.scalars(select(Run.id).where(Run.id.in_(distinct), not_(is_visible(Run.project, Run.by)))))


def visible_fences() -> ColumnElement[bool]:
    """The condition on attempts that their runs are visible."""
    return Attempt.run_id.in_(select(Run.id).where(visible_runs()))


# Sentences that everybody reads, whatever they may see: the queue's reasons, the memory of nodes.


def public_name() -> ColumnElement[str]:
    """The name of a run as sentences for everybody have it: those of private projects have none."""
    return case((Run.project.in_(select(PrivateProject.project)), SOME_RUN), else_=Run.name)


def is_private(session: Session, run: Run) -> bool:
    """Whether sentences for everybody may not name the run."""
    return session.get(PrivateProject, run.project) is not None
