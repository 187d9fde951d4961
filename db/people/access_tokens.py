"""Access tokens of people: made, listed, revoked, and found by their secrets, of which only hashes are stored."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Select, delete, func, or_, select, update
from sqlalchemy.orm import Session

from db import acting
from db.budgets import charges
from db.engine import Store
from db.exceptions import NoSuch
from db.models import AccessToken
from db.people import audit
from domain.people.audit import AuditAction
from domain.people.roles import Scope
from domain.people.tokens import AccessTokenView, TokenWanted, bounds_in_words
from domain.requests.errors import InvalidRequest

ENDED_KEPT_S = 30 * 24 * 3600.0
"""How long a token that has ended is known, and its user told why it is refused."""


class NoSuchAccessToken(NoSuch):
    """The person has no valid token of that name."""


@dataclass(frozen=True)
class StoredToken:
    """A token as it is stored, which a secret stands for."""

    id: str
    user: str
    name: str
    scope: Scope
    project: str | None
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    has_budget: bool = False


def make(store: Store, user: str, terms: TokenWanted, secret_hash: str, now: float) -> AccessTokenView:
    """Store a token. Raises InvalidRequest where the person has a valid one of that name."""
    with store.write() as session:
        if terms.name in _names(session, user, now):
            raise InvalidRequest("name", f"You have a token {terms.name} already: revoke it, or choose another name.")
        return add(session, user, terms, secret_hash, now)


def add(session: Session, user: str, terms: TokenWanted, secret_hash: str, now: float) -> AccessTokenView:
    """Add a token in an open transaction, and forget those that ended long ago."""
    ended_at = func.coalesce(AccessToken.revoked_at, AccessToken.expires_at)
    session.execute(delete(AccessToken).where(ended_at < now - ENDED_KEPT_S))
    row = AccessToken(
        id=secrets.token_hex(4),
        user=user,
        name=terms.name,
        scope=terms.scope,
        project=terms.project,
        secret_hash=secret_hash,
        created_at=now,
        expires_at=None if terms.lasts_s is None else now + terms.lasts_s,
        **(vars(terms.bounds) if terms.bounds else {}),
    )
    session.add(row)
    session.flush()
    bounds = {"bounds": bounds_in_words(terms.bounds)} if terms.bounds else {}
    more = {"scope": row.scope, "of": user} | bounds
    audit.record(session, AuditAction.TOKEN_MADE, f"token {row.name}", row.project, more)
    return view(session, row, now)


def free_name(session: Session, user: str, name: str, now: float) -> str:
    """The name, or with a number where the person has a valid token of that name."""
    used = _names(session, user, now)
    return next(free for n in range(1, len(used) + 2) if (free := f"{name}-{n}" if n > 1 else name) not in used)


def every(store: Store, user: str | None, now: float) -> list[AccessTokenView]:
    """The tokens of a person, or of all (None), newest first; also those that have expired lately."""
    query = select(AccessToken).where(AccessToken.revoked_at.is_(None))
    if user is not None:
        query = query.where(AccessToken.user == user)
    is_shown = or_(AccessToken.expires_at.is_(None), AccessToken.expires_at > now - ENDED_KEPT_S)
    with store.read() as session:
        rows = session.scalars(query.where(is_shown).order_by(AccessToken.created_at.desc(), AccessToken.id))
        return [view(session, row, now) for row in rows]


def revoke(store: Store, user: str, name: str, now: float) -> str:
    """Revoke a token, by its person and name; returns its hash. Raises NoSuchAccessToken."""
    with store.write() as session:
        row = session.scalars(_valid(user, now).where(AccessToken.name == name)).first()
        if row is None:
            raise NoSuchAccessToken(f"There is no valid token {name!r} of {user}.")
        return _end(session, row, now)


def revoke_all(session: Session, user: str, now: float) -> list[str]:
    """Revoke all tokens of a person; returns their hashes."""
    return [_end(session, row, now) for row in session.scalars(_valid(user, now)).all()]


def _end(session: Session, row: AccessToken, now: float) -> str:
    row.revoked_at = now
    by = acting.rights().by or row.user
    audit.record(session, AuditAction.TOKEN_REVOKED, f"token {row.name}", row.project, {"of": row.user}, by=by)
    return row.secret_hash


def by_hash(store: Store, secret_hash: str) -> StoredToken | None:
    """The token with a secret of this hash, also where it has ended."""
    with store.read() as session:
        row = session.scalars(select(AccessToken).where(AccessToken.secret_hash == secret_hash)).first()
        if row is None:
            return None
        return StoredToken(
            row.id, row.user, row.name, Scope(row.scope), row.project, row.expires_at, row.revoked_at,
            row.last_used_at, has_budget=row.budget_s is not None,
        )  # fmt: skip


def has_budget(store: Store, secret_hash: str) -> bool:
    """Whether the token with a secret of this hash has a budget."""
    with store.read() as session:
        return session.scalar(select(AccessToken.budget_s).where(AccessToken.secret_hash == secret_hash)) is not None


def used(store: Store, last_used_at: Mapping[str, float]) -> None:
    """Write down when tokens were used last, by their ids."""
    with store.write() as session:
        for token_id, at in last_used_at.items():
            session.execute(update(AccessToken).where(AccessToken.id == token_id).values(last_used_at=at))


def _names(session: Session, user: str, now: float) -> set[str]:
    return {row.name for row in session.scalars(_valid(user, now))}


def _valid(user: str, now: float) -> Select[AccessToken]:
    is_fresh = or_(AccessToken.expires_at.is_(None), AccessToken.expires_at > now)
    return select(AccessToken).where(AccessToken.user == user, AccessToken.revoked_at.is_(None), is_fresh)


def view(session: Session, row: AccessToken, now: float) -> AccessTokenView:
    """The token as people see it."""
    return AccessTokenView(
        row.name, row.user, Scope(row.scope), row.project, row.created_at, row.expires_at, row.last_used_at,
        charges.budget_of(session, row, now) if row.budget_s is not None else None,
    )  # fmt: skip
