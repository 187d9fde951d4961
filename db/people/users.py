"""The people of an installation, and the rights that follow from their roles."""

from __future__ import annotations

from types import MappingProxyType

from sqlalchemy import not_, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Membership, PrivateProject, Run, Secret, User
from db.people.visibility import is_visible
from domain.people.rights import Rights
from domain.people.roles import Action, Role


def rights_of(store: Store, name: str) -> Rights | None:
    """The rights of a person; None where they were removed or never were."""
    with store.read() as session:
        return rights_in(session, name)


def rights_in(session: Session, name: str) -> Rights | None:
    """The rights of a person, within a transaction; None where they were removed or never were."""
    user = session.get(User, name)
    if user is None or user.removed_at is not None:
        return None
    return Rights(
        user.name,
        everywhere=Role(user.role) if user.role else None,
        in_projects=MappingProxyType(_roles(session, name)),
        private=frozenset(session.scalars(select(PrivateProject.project))),
    )


def could_become(session: Session, rights: Rights, name: str) -> bool:
    """Whether who signs in as this person reaches nothing that these rights do not reach: a link to a new password lets
    its maker do so. Secrets are nobody's but their person's, private projects and runs there those of their people."""
    person = rights_in(session, name)
    if person is None or rights.is_owner or rights.by == name:
        return person is not None
    has_secrets = session.scalar(select(Secret.name).where(Secret.user == name).limit(1)) is not None
    private = person.private.intersection(person.in_projects)
    own_hidden = select(Run.id).where(Run.by == name, not_(is_visible(Run.project, Run.by, rights))).limit(1)
    return (
        not person.is_owner
        and not has_secrets
        and rights.may(Action.OPERATE, None)
        and all(rights.may(Action.MANAGE, project) for project in private)
        and session.scalar(own_hidden) is None
    )


def has_several(store: Store) -> bool:
    """Whether more than one person may use this installation."""
    with store.read() as session:
        return are_several(session)


def are_several(session: Session) -> bool:
    """Whether more than one person may use this installation, within a transaction."""
    return len(session.scalars(select(User.name).where(User.removed_at.is_(None)).limit(2)).all()) > 1


def by_whom(session: Session, sentence: str, by: str | None) -> str:
    """A sentence that begins with Stopped, with the name of who asked for it where several people may have."""
    begin = sentence[:7]
    return f"{begin} by {by}{sentence[7:]}" if by and begin.lower() == "stopped" and are_several(session) else sentence


def _roles(session: Session, name: str) -> dict[str, Role]:
    rows = session.execute(select(Membership.project, Membership.role).where(Membership.user == name))
    return {project: Role(role) for project, role in rows}
