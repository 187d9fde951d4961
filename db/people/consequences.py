"""Consequences of a change for other people than the actor, by the present store: for pages, API and commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlalchemy import ColumnElement, func, not_, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.lookups import node_named
from db.models import (
    AccessToken,
    Attempt,
    Invitation,
    Membership,
    PrivateProject,
    Run,
    Secret,
    Study,
    Task,
    User,
)  # fmt: skip
from db.people.accounts import OPEN_LINK, user
from db.people.users import rights_in
from db.people.visibility import is_visible, visible_runs
from domain.messages import LIVE_STATES, State
from domain.people import consequences
from domain.people.consequences import NOTHING, Consequence
from domain.people.rights import Rights
from domain.people.roles import EVERYWHERE, Role


def of_privacy(store: Store, project: str) -> Consequence:
    """Return the loss of others if a project is made private; none where it is, or only the actor sees it."""
    with store.read() as session:
        if session.get(PrivateProject, project) is not None:
            return NOTHING
        members = select(Membership.user).where(Membership.project == project)
        query = select(User.name).where(User.removed_at.is_(None), User.role.is_not(None), User.role != Role.OWNER)
        people = session.scalars(query.where(User.name.not_in(members), User.name != acting.name()).order_by(User.name))
        runs = session.scalar(select(func.count()).where(Run.project == project, Run.deleted_at.is_(None))) or 0
        return consequences.of_privacy(project, people.all(), runs)


def of_role(store: Store, name: str, role: Role | None, project: str | None) -> Consequence:
    """Return a person's loss by this role there; none where it is not lower, or the person is the actor.

    Raises NoSuchUser."""
    with store.read() as session:
        user(session, name)
        before = rights_in(session, name)
        if before is None:
            return NOTHING
        had = before.everywhere if project is None else before.in_projects.get(project)
        if had is None or name == acting.name() or (role is not None and role.rank >= had.rank):
            return NOTHING
        unseen, runs = _lost_sight(session, before, _with_role(before, role, project))
    where = f"project {project}" if project else EVERYWHERE
    return consequences.of_role(name, _with_article(had), _with_article(role), where, unseen, runs)


def of_removal(store: Store, name: str) -> Consequence:
    """Return a person's loss by removal: their live runs, and all that ends with the account. Raises NoSuchUser."""
    with store.read() as session:
        user(session, name)
        tokens = select(func.count()).where(AccessToken.user == name, AccessToken.revoked_at.is_(None))
        counted = {
            "access token": tokens,
            "secret": select(func.count()).where(Secret.user == name),
            "open link": select(func.count()).where(Invitation.by == name, *OPEN_LINK),
            "live study": select(func.count()).where(Study.by == name, Study.ended_at.is_(None)),
        }
        others = {noun: session.scalar(query) or 0 for noun, query in counted.items()}
        return consequences.of_removal(name, len(live_runs_of(session, name)), others)


def of_drain(store: Store, node: str) -> Consequence:
    """Return whose runs train on a node to be drained; none where nobody else trains there. Raises NoSuchNode."""
    with store.read() as session:
        row = node_named(session, node)
        fences = select(Task.fence).where(Task.node_id == row.id, Task.state.in_(LIVE_STATES))
        there = Run.id.in_(select(Attempt.run_id).where(Attempt.fence.in_(fences)))
        hidden = session.scalar(select(func.count()).where(there, not_(is_visible(Run.project, Run.by)))) or 0
        return consequences.of_drain(row.name, _owners(session, there & is_visible(Run.project, Run.by)), hidden)


def of_runs(store: Store, run_ids: Collection[str]) -> Consequence:
    """Return whose runs the actor would stop, delete or change; none where all are their own."""
    with store.read() as session:
        return consequences.of_runs(_owners(session, Run.id.in_(run_ids) & visible_runs()))


def of_thing(noun: str, owner: str | None) -> Consequence:
    """Return whose link, alert or sweep the actor would end; none where it is their own."""
    return consequences.of_thing(noun, owner, acting.name())


def live_runs_of(session: Session, name: str) -> list[str]:
    """The runs of a person that have not ended, oldest first, also those hidden from the actor."""
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    is_live = Attempt.state.in_((State.QUEUED, *LIVE_STATES))
    query = select(Run.id).join(Attempt, Attempt.run_id == Run.id).where(Attempt.fence.in_(newest), is_live)
    return list(session.scalars(query.where(Run.by == name, Run.deleted_at.is_(None)).order_by(Run.created_at, Run.id)))


def _owners(session: Session, condition: ColumnElement[bool]) -> Mapping[str, int]:
    """The number of these runs of each other person, by name."""
    query = select(Run.by, func.count()).where(condition, Run.by.is_not(None), Run.by != acting.name())
    rows = session.execute(query.group_by(Run.by).order_by(Run.by))
    return {str(name): amount for name, amount in rows}


def _with_role(rights: Rights, role: Role | None, project: str | None) -> Rights:
    if project is None:
        return replace(rights, everywhere=role)
    others = {name: own for name, own in rights.in_projects.items() if name != project}
    return replace(rights, in_projects=MappingProxyType(others if role is None else others | {project: role}))


def _lost_sight(session: Session, before: Rights, after: Rights) -> tuple[list[str], int]:
    """The projects in which a person sees runs with the rights before and not after, and the number of these runs.

    Runs that are hidden from the actor are not counted, and their projects not named."""
    seen_after = select(Run.id).where(visible_runs(after))
    query = select(Run.project, func.count()).where(visible_runs(before), Run.id.not_in(seen_after), visible_runs())
    rows = session.execute(query.group_by(Run.project).order_by(Run.project)).all()
    return [project for project, _ in rows], sum(amount for _, amount in rows)


def _with_article(role: Role | None) -> str:
    return "without a role" if role is None else f"an {role}" if role is Role.ADMIN else f"a {role}"
