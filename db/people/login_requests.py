"""Command lines that ask to be let in: each by a code that a person compares, and a secret that becomes its token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuch
from db.models import AccessToken, LoginRequest
from db.people import access_tokens, audit
from domain.people.audit import AuditAction
from domain.people.roles import Scope
from domain.people.tokens import AccessTokenView, TokenWanted

LIFETIME_S = 600.0
KEPT_S = 3600.0
"""How long a request is known after its end, and its command line told what became of it."""
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels, so that codes are no words, and without letters that look like digits."""
CODE_LETTERS = 8


class NoSuchRequest(NoSuch):
    """No command line waits with this code: it has expired, was answered, or never was."""


class LoginOutcome(StrEnum):
    """The state of a request."""

    WAITING = "waiting"
    ALLOWED = "allowed"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True)
class LoginRequestView:
    """A request that waits: what a person decides on."""

    code: str
    terms: TokenWanted
    """Its name is the machine's."""
    address: str | None
    expires_at: float


class WaitingLimit(NamedTuple):
    """The largest number of requests that wait."""

    most: int
    familiar_addresses: Collection[str | None]
    """Addresses whose requests are dropped last."""


def ask(
    store: Store, terms: TokenWanted, secret_hash: str, address: str | None, now: float, limit: WaitingLimit
) -> LoginRequestView:
    """Store a new request, and forget those that ended long ago; where too many wait, drop one of them."""
    code = "".join(secrets.choice(LETTERS) for _ in range(CODE_LETTERS))
    row = LoginRequest(
        code=code,
        secret_hash=secret_hash,
        machine=terms.name,
        scope=terms.scope,
        project=terms.project,
        lasts_s=terms.lasts_s,
        address=address,
        created_at=now,
        expires_at=now + LIFETIME_S,
    )
    with store.write() as session:
        session.execute(delete(LoginRequest).where(LoginRequest.expires_at < now - KEPT_S))
        _drop_surplus(session, limit, now)
        session.add(row)
        session.flush()
        return _view(row)


def _drop_surplus(session: Session, limit: WaitingLimit, now: float) -> None:
    """Where too many wait, drop the oldest request of the address with most of them, strangers' addresses first."""
    waiting = (LoginRequest.expires_at > now, LoginRequest.answered_at.is_(None))
    begun = func.min(LoginRequest.created_at)
    rows = session.execute(select(LoginRequest.address, func.count(), begun).where(*waiting).group_by("address")).all()
    if sum(count for _, count, _ in rows) < limit.most:
        return
    address = min(rows, key=lambda row: (row[0] in limit.familiar_addresses, -row[1], row[2]))[0]
    of_address = select(LoginRequest).where(*waiting, LoginRequest.address == address)
    session.delete(session.scalars(of_address.order_by(LoginRequest.created_at).limit(1)).one())


def waiting(store: Store, code: str, now: float) -> LoginRequestView:
    """The request with this code. Raises NoSuchRequest."""
    with store.read() as session:
        return _view(_waiting(session, code, now))


def allow(store: Store, code: str, user: str, now: float) -> AccessTokenView:
    """Let a command line in for a person: its secret is their token from now on. Raises NoSuchRequest."""
    with store.write() as session:
        row = _waiting(session, code, now)
        row.user, row.answered_at = user, now
        name = access_tokens.free_name(session, user, row.machine, now)
        terms = TokenWanted(name, Scope(row.scope), row.project, row.lasts_s)
        return access_tokens.add(session, user, terms, row.secret_hash, now)


def refuse(store: Store, code: str, user: str, now: float) -> None:
    """Refuse a request. Raises NoSuchRequest."""
    with store.write() as session:
        row = _waiting(session, code, now)
        row.user, row.answered_at, row.is_refused = user, now, True
        audit.record(session, AuditAction.LOGIN_REFUSED, f"machine {row.machine}", row.project)


def outcome(store: Store, code: str, secret_hash: str, now: float) -> tuple[LoginOutcome, AccessTokenView | None]:
    """The state of a request, and its token where it was allowed. Raises NoSuchRequest."""
    with store.read() as session:
        row = session.get(LoginRequest, plain(code))
        if row is None or not hmac.compare_digest(row.secret_hash, secret_hash):
            raise NoSuchRequest("There is no such login: it ended, or made room for others. Begin again.")
        if row.is_refused:
            return LoginOutcome.REFUSED, None
        if row.answered_at is None:
            return (LoginOutcome.WAITING if now < row.expires_at else LoginOutcome.EXPIRED), None
        token = session.scalars(select(AccessToken).where(AccessToken.secret_hash == secret_hash)).first()
        if token is None:
            return LoginOutcome.EXPIRED, None
        return LoginOutcome.ALLOWED, access_tokens.view(session, token, now)


def plain(code: str) -> str:
    """The code as it is stored, of what a person typed."""
    return "".join(letter for letter in code.upper() if letter in LETTERS)[: CODE_LETTERS + 1]


def shown(code: str) -> str:
    """The code as people compare it: BCDF-GHJK."""
    half = CODE_LETTERS // 2
    return f"{code[:half]}-{code[half:]}"


def _waiting(session: Session, code: str, now: float) -> LoginRequest:
    row = session.get(LoginRequest, plain(code))
    if row is None or row.answered_at is not None or now >= row.expires_at:
        raise NoSuchRequest("No command line waits with this code: it was answered, has expired, or never existed.")
    return row


def _view(row: LoginRequest) -> LoginRequestView:
    terms = TokenWanted(row.machine, Scope(row.scope), row.project, row.lasts_s)
    return LoginRequestView(row.code, terms, row.address, row.expires_at)
