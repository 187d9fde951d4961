"""Browsers that are signed in: sessions by the hash of their secret; they end, all of them, after a set time."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import delete, func, select, update

from db import acting
from db.engine import Store
from db.exceptions import NoSuch
from db.models import LoginSession, User
from db.people import audit
from domain.people.audit import AuditAction

KEPT_S = 7 * 24 * 3600.0
"""How long sessions stay in the store after they have ended."""


class NoSuchSession(NoSuch):
    """There is no session of that id."""


class StoredSession(NamedTuple):
    """A session that has not ended."""

    secret_hash: str
    user: str
    way: str
    address: str | None
    created_at: float
    expires_at: float
    browser: str | None = None


def begin(store: Store, session: StoredSession) -> None:
    """Store a new session; forgets those that ended long ago."""
    with store.write() as writing:
        writing.execute(delete(LoginSession).where(LoginSession.expires_at < session.created_at - KEPT_S))
        writing.add(LoginSession(**session._asdict()))
        more, user = {"way": session.way}, session.user
        audit.record(writing, AuditAction.SIGNED_IN, f"person {user}", more=more, by=user)


def open_ones(store: Store, hashes: Collection[str], now: float) -> dict[str, StoredSession]:
    """The open ones among these sessions, by their hashes."""
    with store.read() as reading:
        rows = reading.execute(_open.where(LoginSession.secret_hash.in_(hashes), LoginSession.expires_at > now))
        return {row[0]: StoredSession(*row) for row in rows}


def of_person(store: Store, name: str, now: float) -> list[StoredSession]:
    """A person's open sessions, newest first."""
    query = _open.where(LoginSession.user == name, LoginSession.expires_at > now)
    with store.read() as reading:
        rows = reading.execute(query.order_by(LoginSession.created_at.desc()))
        return [StoredSession(*row) for row in rows]


def addresses(store: Store) -> set[tuple[str | None, str]]:
    """The address and person of each session that the store still has, those that have ended too."""
    with store.read() as reading:
        rows = reading.execute(select(LoginSession.address, LoginSession.user).distinct())
        return {(address, user) for address, user in rows}


_open = (
    select(*(getattr(LoginSession, name) for name in StoredSession._fields))
    .join(User, User.name == LoginSession.user)
    .where(
        LoginSession.ended_at.is_(None),
        LoginSession.created_at >= User.sessions_since,
        User.removed_at.is_(None),
    )
)


def end(store: Store, secret_hash: str, now: float) -> None:
    """End a session, for good."""
    with store.write() as writing:
        row = writing.get(LoginSession, secret_hash)
        if row is not None and row.ended_at is None:
            row.ended_at = now
            audit.record(writing, AuditAction.SIGNED_OUT, f"person {row.user}", by=row.user)


def end_all(store: Store, name: str, now: float, but: str | None = None) -> None:
    """End all sessions of a person that began before now, except one."""
    with store.write() as writing:
        writing.execute(update(User).where(User.name == name).values(sessions_since=now))
        own = (LoginSession.user == name, LoginSession.ended_at.is_(None))
        others = (*own, LoginSession.expires_at > now, LoginSession.secret_hash != (but or ""))
        if ended := writing.scalar(select(func.count()).select_from(LoginSession).where(*others)):
            more = {"sessions": ended}
            audit.record(writing, AuditAction.SIGNED_OUT, f"person {name}", more=more, by=acting.rights().by or name)
        writing.execute(update(LoginSession).where(*own, LoginSession.secret_hash != (but or "")).values(ended_at=now))
        if but is not None:
            current = update(LoginSession).where(*own, LoginSession.secret_hash == but)
            writing.execute(current.values(created_at=now))
