"""What a change would take from other people than the actor, as the store is now: asked by pages, API and commands."""

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
    ScalingStudy,
    Secret,
    Sweep,
    Task,
    User,
)  # fmt: skip
from db.people.accounts import OPEN_LINK, user
from db.people.users import rights_in
from db.people.visibility import is_visible, visible_runs
from domain.messages import LIVE_STATES, State
from domain.people import consequences
from domain.people.consequences import NOTHING, Consequence
from domain.people.rights import OWNER, Rights
from domain.people.roles import EVERYWHERE, Role


def of_privacy(store: Store, project: str) -> Consequence:
    """What it would take that a project is made private: nothing where it is, or only the actor sees it."""
    with store.read() as session:
        if session.get(PrivateProject, project) is not None:
            return NOTHING
        members = select(Membership.user).where(Membership.project == project)
        query = select(User.name).where(User.removed_at.is_(None), User.role.is_not(None), User.role != Role.OWNER)
        people = session.scalars(query.where(User.name.not_in(members), User.name != _actor()).order_by(User.name))
        runs = session.scalar(select(func.count()).where(Run.project == project, Run.deleted_at.is_(None))) or 0
        return consequences.of_privacy(project, people.all(), runs)


def of_role(store: Store, name: str, role: Role | None, project: str | None) -> Consequence:
    """What it would take that a person has this role there; nothing where it is no lower one, or their own.

    Raises NoSuchUser."""
    with store.read() as session:
        user(session, name)
        before = rights_in(session, name)
        if before is None:
            return NOTHING
        had = before.everywhere if project is None else before.in_projects.get(project)
        if had is None or name == _actor() or (role is not None and role.rank >= had.rank):
            return NOTHING
        unseen, runs = _lost_sight(session, before, _with_role(before, role, project))
    where = f"project {project}" if project else EVERYWHERE
    return consequences.of_role(name, _with_article(had), _with_article(role), where, unseen, runs)


def of_removal(store: Store, name: str) -> Consequence:
    """What it would take that a person is removed: their live runs, and what ends with them. Raises NoSuchUser."""
    with store.read() as session:
        user(session, name)
        tokens = select(func.count()).where(AccessToken.user == name, AccessToken.revoked_at.is_(None))
        counted = {
            "access token": tokens,
            "secret": select(func.count()).where(Secret.user == name),
            "open link": select(func.count()).where(Invitation.by == name, *OPEN_LINK),
            "live sweep": select(func.count()).where(Sweep.by == name, Sweep.ended_at.is_(None)),
            "live study": select(func.count()).where(ScalingStudy.by == name, ScalingStudy.ended_at.is_(None)),
        }
        others = {noun: session.scalar(query) or 0 for noun, query in counted.items()}
        return consequences.of_removal(name, len(live_runs_of(session, name)), others)


def of_drain(store: Store, node: str) -> Consequence:
    """What it would take that a node starts nothing new: nothing where nobody else trains there. Raises NoSuchNode."""
    with store.read() as session:
        row = node_named(session, node)
        fences = select(Task.fence).where(Task.node_id == row.id, Task.state.in_(LIVE_STATES))
        there = Run.id.in_(select(Attempt.run_id).where(Attempt.fence.in_(fences)))
        hidden = session.scalar(select(func.count()).where(there, not_(is_visible(Run.project, Run.by)))) or 0
        return consequences.of_drain(row.name, _owners(session, there & is_visible(Run.project, Run.by)), hidden)


def of_runs(store: Store, run_ids: Collection[str]) -> Consequence:
    """Whose runs these are that the actor would stop, delete or change: nothing where all are their own."""
    with store.read() as session:
        return consequences.of_runs(_owners(session, Run.id.in_(run_ids) & visible_runs()))


def of_thing(noun: str, owner: str | None) -> Consequence:
    """Whose thing it is that the actor would end: nothing where it is their own."""
    return consequences.of_thing(noun, owner, _actor())


def live_runs_of(session: Session, name: str) -> list[str]:
    """The runs of a person that have not ended, oldest first, whoever may see them."""
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    is_live = Attempt.state.in_((State.QUEUED, *LIVE_STATES))
    query = select(Run.id).join(Attempt, Attempt.run_id == Run.id).where(Attempt.fence.in_(newest), is_live)
    return list(session.scalars(query.where(Run.by == name, Run.deleted_at.is_(None)).order_by(Run.created_at, Run.id)))


def _actor() -> str:
    return acting.rights().by or OWNER


def _owners(session: Session, condition: ColumnElement[bool]) -> Mapping[str, int]:
    """How many of these runs other people launched, by their names."""
    query = select(Run.by, func.count()).where(condition, Run.by.is_not(None), Run.by != _actor())
    rows = session.execute(query.group_by(Run.by).order_by(Run.by))
    return {str(name): amount for name, amount in rows}


def _with_role(rights: Rights, role: Role | None, project: str | None) -> Rights:
    if project is None:
        return replace(rights, everywhere=role)
    others = {name: own for name, own in rights.in_projects.items() if name != project}
    return replace(rights, in_projects=MappingProxyType(others if role is None else others | {project: role}))


def _lost_sight(session: Session, before: Rights, after: Rights) -> tuple[list[str], int]:
    """The projects that somebody sees with these rights before and not after, with the number of their runs that are
    lost; those that are hidden from the actor are neither named nor counted."""
    kept = select(Run.id).where(visible_runs(after))
    query = select(Run.project, func.count()).where(visible_runs(before), Run.id.not_in(kept), visible_runs())
    rows = session.execute(query.group_by(Run.project).order_by(Run.project)).all()
    return [project for project, _ in rows], sum(amount for _, amount in rows)


def _with_article(role: Role | None) -> str:
    return "without a role" if role is None else f"an {role}" if role is Role.ADMIN else f"a {role}"
