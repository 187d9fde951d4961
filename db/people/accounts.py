"""Accounts: make them, find them at sign-in, change their password, address and roles, remove them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.exceptions import NoSuch, WrongState
from db.models import AccessToken, Invitation, Membership, User
from db.people import audit
from domain.people.accounts import UserView, proposed_name
from domain.people.audit import AuditAction
from domain.people.rights import OWNER
from domain.people.roles import Role
from domain.requests.errors import InvalidRequest


class NoSuchUser(NoSuch):
    """There is no person of that name."""


class Entry(NamedTuple):
    """What a sign-in needs of an account."""

    name: str
    email: str | None
    password_hash: str | None
    identity: str | None


class NewAccount(NamedTuple):
    """What an account is made of; `role` is for all projects that are not private."""

    name: str
    email: str | None
    role: Role | None
    password_hash: str | None = None
    identity: str | None = None


def create(session: Session, account: NewAccount, now: float) -> None:
    """Make an account; it is signed by the actor, else by itself. Raises InvalidRequest: its name is taken."""
    if session.get(User, account.name) is not None:
        raise InvalidRequest("name", f"The name {account.name} is taken: choose another.")
    require_free_email(session, account.email)
    _release(session, account)
    row = User(
        name=account.name,
        email=account.email,
        password_hash=account.password_hash,
        identity=account.identity,
        role=account.role,
        created_at=now,
        created_by=acting.rights().by or account.name,
        sessions_since=0.0,
    )
    session.add(row)
    session.flush()
    audit.record(session, AuditAction.JOINED, f"person {account.name}", by=acting.rights().by or account.name)


def _release(session: Session, account: NewAccount) -> None:
    """Let a removed person who is invited again have the address and identity of the earlier account."""
    removed = User.removed_at.is_not(None)
    if account.email is not None:
        session.execute(update(User).where(removed, User.email == account.email).values(email=None))
    if account.identity is not None:
        session.execute(update(User).where(removed, User.identity == account.identity).values(identity=None))


def require_free_email(session: Session, email: str | None, but: str | None = None) -> None:
    """Raise InvalidRequest where the address is another account's."""
    holder = by_email(session, email) if email else None
    if holder is not None and holder.name != but:
        raise InvalidRequest("email", f"{email} has an account here already.")


def free_name(session: Session, email: str) -> str:
    """A name that nobody has or had, for the person with this address."""
    return proposed_name(email, set(session.scalars(select(User.name))))


def by_email(session: Session, email: str) -> User | None:
    """The account with this address."""
    return session.scalar(_present.where(User.email == email))


def by_identity(session: Session, identity: str) -> User | None:
    """The account of this person of a provider."""
    return session.scalar(_present.where(User.identity == identity))


_present = select(User).where(User.removed_at.is_(None))


def entry(store: Store, name_or_email: str) -> Entry | None:
    """The account that somebody means who types its name or address, if there is one."""
    is_meant = or_(User.name == name_or_email, User.email == name_or_email)
    with store.read() as session:
        row = session.scalar(_present.where(is_meant).order_by(User.name == name_or_email))
        return None if row is None else Entry(row.name, row.email, row.password_hash, row.identity)


def named_entry(store: Store, name: str) -> Entry:
    """The account of that name. Raises NoSuchUser."""
    with store.read() as session:
        row = user(session, name)
        return Entry(row.name, row.email, row.password_hash, row.identity)


def has_passwords(store: Store) -> bool:
    """Whether anybody signs in with a password."""
    with store.read() as session:
        query = select(User.name).where(User.removed_at.is_(None), User.password_hash.is_not(None)).limit(1)
        return session.scalar(query) is not None


def set_password(store: Store, name: str, password_hash: str) -> None:
    """Set a password. Raises NoSuchUser."""
    with store.write() as session:
        change_password(session, name, password_hash)


def change_password(session: Session, name: str, password_hash: str, by_link: str | None = None) -> None:
    """Set a password; a link with which it was set, by its id, is good no more, nor is any other. Raises NoSuchUser."""
    user(session, name).password_hash = password_hash
    more = {"changed": "password"} | ({"by": f"invitation {by_link}"} if by_link else {})
    audit.record(session, AuditAction.ACCOUNT_CHANGED, f"person {name}", more=more, by=acting.rights().by or name)
    end_links(session, Invitation.user == name)


OPEN_LINK = (Invitation.accepted_at.is_(None), Invitation.revoked_at.is_(None))
"""The conditions on invitations that are neither used nor revoked; they may have expired."""


def end_links(session: Session, condition: ColumnElement[bool]) -> None:
    """End the invitations that meet a condition, for a reason that the audit log has already."""
    ending = update(Invitation).where(condition, *OPEN_LINK)
    session.execute(ending.values(revoked_at=Invitation.created_at))  # the time does not matter


def rehash(store: Store, name: str, old: str, new: str) -> None:
    """Store another hash of the same password, unless it has changed."""
    with store.write() as session:
        session.execute(update(User).where(User.name == name, User.password_hash == old).values(password_hash=new))


def set_email(store: Store, name: str, email: str) -> None:
    """Set the address with which a person signs in. Raises NoSuchUser, InvalidRequest."""
    with store.write() as session:
        row = user(session, name)
        require_free_email(session, email, but=name)
        session.execute(update(User).where(User.removed_at.is_not(None), User.email == email).values(email=None))
        row.email = email
        audit.record(session, AuditAction.ACCOUNT_CHANGED, f"person {name}", more={"changed": "email"})


def set_role(store: Store, name: str, role: Role | None, project: str | None) -> None:
    """Give a person a role in a project, or in all that are not private; None takes it away.

    Raises NoSuchUser, WrongState: the owner stays the owner."""
    with store.write() as session:
        row = user(session, name)
        if row.name == OWNER:
            raise WrongState("The owner has every role, and keeps it.")
        if project is None:
            row.role = role
        else:
            set_membership(session, name, project, role)
        more = {"role": role.value if role else None}
        audit.record(session, AuditAction.ROLE_CHANGED, f"person {name}", project, more)


def set_membership(session: Session, name: str, project: str, role: Role | None) -> None:
    """Give a person a role in one project; None takes it away."""
    row = session.get(Membership, (name, project))
    if row is not None and role is None:
        session.delete(row)
    elif row is not None:
        row.role = str(role)
    elif role is not None:
        session.add(Membership(user=name, project=project, role=role))


def end_tokens(session: Session, name: str, now: float) -> None:
    """Revoke all access tokens of a person, for a reason that the audit log has already."""
    ended = func.coalesce(AccessToken.revoked_at, now)
    session.execute(update(AccessToken).where(AccessToken.user == name).values(revoked_at=ended))


def user(session: Session, name: str) -> User:
    """The account of that name. Raises NoSuchUser."""
    row = session.scalar(_present.where(User.name == name))
    if row is None:
        raise NoSuchUser(f"There is no person {name!r}.")
    return row


def is_present(session: Session, name: str) -> bool:
    """Whether there is a person of that name, who was not removed."""
    return session.scalar(_present.where(User.name == name)) is not None


def named(store: Store, name: str) -> UserView:
    """One person. Raises NoSuchUser."""
    with store.read() as session:
        user(session, name)
        return _views(session, User.name == name)[0]


def every(store: Store) -> list[UserView]:
    """All people, by name."""
    with store.read() as session:
        return _views(session)


def _views(session: Session, *conditions: Any) -> list[UserView]:
    rows = session.scalars(_present.where(*conditions).order_by(User.name)).all()
    roles: dict[str, dict[str, Role]] = {row.name: {} for row in rows}
    for membership in session.scalars(select(Membership).order_by(Membership.project)):
        if membership.user in roles:
            roles[membership.user][membership.project] = Role(membership.role)
    return [_view(row, roles[row.name]) for row in rows]


def _view(row: User, projects: dict[str, Role]) -> UserView:
    return UserView(
        name=row.name,
        email=row.email,
        role=Role(row.role) if row.role else None,
        projects=projects,
        last_seen_at=row.last_seen_at,
        created_at=row.created_at,
        has_password=row.password_hash is not None,
        has_identity=row.identity is not None,
    )


def saw(store: Store, visits: Mapping[str, float]) -> None:
    """Record when people were last here."""
    with store.write() as session:
        for name, at in sorted(visits.items()):
            is_later = or_(User.last_seen_at.is_(None), User.last_seen_at < at)
            session.execute(update(User).where(User.name == name, is_later).values(last_seen_at=at))
