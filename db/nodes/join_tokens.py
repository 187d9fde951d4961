"""Join tokens for new nodes: they expire, can be revoked, and are stored as hashes only, as are the tokens of nodes."""

from __future__ import annotations

import hmac
import math
import re
import secrets
from dataclasses import dataclass

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.exceptions import NoSuch
from db.models import JoinToken
from db.people import audit, users
from db.token_hashes import hash_token
from domain.people.audit import AuditAction
from domain.people.rights import PROGRAM
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.text.formats import clock_minute
from domain.views import JoinTokenView

PREFIX = "rzjoin"
DEFAULT_TTL_S = 24 * 3600.0
SHORTEST_TTL_S = 60.0
LONGEST_TTL_S = 366 * 24 * 3600.0
LONGEST_NAME = 200
ENDED_KEPT_S = 7 * 24 * 3600.0
"""How long an ended token is listed, and its worker told why it is refused."""
_SECRET = re.compile(rf"{PREFIX}-([0-9a-f]{{8}})-[\w-]{{20,200}}", re.ASCII)


class NoSuchToken(NoSuch):
    """There is no join token of that id."""


@dataclass(frozen=True)
class Admitted:
    """The valid join token with which a worker may register."""

    id: str


def make(
    store: Store, ttl_s: float | None, name: str, now: float, most_uses: int | None = None
) -> tuple[JoinTokenView, str]:
    """Create a token valid for `ttl_s` seconds (default: a day) and, unless that is None, for `most_uses` workers.

    Return it and its secret, which is not stored. Raises InvalidRequest."""
    ttl_s = DEFAULT_TTL_S if ttl_s is None else ttl_s
    if not (math.isfinite(ttl_s) and SHORTEST_TTL_S <= ttl_s <= LONGEST_TTL_S):
        raise InvalidRequest("ttl_s", "ttl_s: a join token must be valid for at least a minute and at most 366 days.")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidRequest("name", f"name must be one line of at most {LONGEST_NAME} characters.")
    token_id = secrets.token_hex(4)
    secret = f"{PREFIX}-{token_id}-{secrets.token_urlsafe(32)}"
    row = JoinToken(
        by=acting.rights().by,
        id=token_id,
        name=name.strip(),
        secret_hash=hash_token(secret),
        created_at=now,
        expires_at=now + ttl_s,
        uses=0,
        most_uses=most_uses,
    )
    ended_at = func.coalesce(JoinToken.revoked_at, JoinToken.expires_at)
    with store.write() as session:
        session.execute(delete(JoinToken).where(ended_at < now - ENDED_KEPT_S))
        session.add(row)
        audit.record(session, AuditAction.TOKEN_MADE, f"join token {row.id}", more={"name": row.name})
    return _view(row), secret


def every(store: Store) -> list[JoinTokenView]:
    """All tokens, newest first, including expired and revoked ones."""
    newest_first = select(JoinToken).order_by(JoinToken.created_at.desc(), JoinToken.id)
    with store.read() as session:
        return [_view(row) for row in session.scalars(newest_first)]


def revoke(store: Store, token_id: str, now: float) -> JoinTokenView:
    """Revoke a token; nodes that have joined stay. Raises NoSuchToken."""
    with store.write() as session:
        row = session.get(JoinToken, token_id)
        if row is None:
            raise NoSuchToken(f"There is no join token {token_id!r}.")
        if row.revoked_at is None:
            row.revoked_at = now
            audit.record(session, AuditAction.TOKEN_REVOKED, f"join token {row.id}", more={"name": row.name})
        return _view(row)


def used(store: Store, token_id: str, now: float) -> None:
    """Record that a worker has joined with a token, which its last use ends."""
    uses = JoinToken.uses + 1
    revoked_at = case((uses >= JoinToken.most_uses, now), else_=JoinToken.revoked_at)
    this = update(JoinToken).where(JoinToken.id == token_id)
    with store.write() as session:
        session.execute(this.values(uses=uses, last_used_at=now, revoked_at=revoked_at))


def judge(store: Store, secret: bytes, now: float) -> Admitted | TurnedAway | None:
    """Admit or turn away a worker with this secret; None when it was never a token."""
    try:
        text = secret.decode("ascii")
    except UnicodeDecodeError:
        return None
    match = _SECRET.fullmatch(text)
    if match is None:
        return None
    with store.read() as session:
        row = session.get(JoinToken, match[1])
        is_permitted = row is not None and _is_permitted(session, row.by)
    if row is None or not hmac.compare_digest(row.secret_hash, hash_token(text)):
        return None
    if row.revoked_at is not None:
        return TurnedAway(_ended(f"was revoked at {clock_minute(row.revoked_at)}"), is_node=False)
    if now >= row.expires_at:
        return TurnedAway(_ended(f"expired at {clock_minute(row.expires_at)}"), is_node=False)
    if not is_permitted:
        return TurnedAway(_ended(f"ended, because {row.by}, who made it, may no longer add nodes"), is_node=False)
    return Admitted(row.id)


def _is_permitted(session: Session, maker: str | None) -> bool:
    """Whether its maker may still add nodes: a node runs what others launch."""
    rights = PROGRAM if maker is None else users.rights_in(session, maker)
    return rights is not None and rights.may(Action.OPERATE, None)


def _ended(how: str) -> str:
    return f"This join token {how}. Make a new one on the Nodes page, or with `rankzero token --join --expires 24h`."


def _view(row: JoinToken) -> JoinTokenView:
    return JoinTokenView(
        id=row.id,
        name=row.name,
        hint=f"{PREFIX}-{row.id}-…",
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        uses=row.uses,
        by=row.by,
    )


# Tokens of nodes, stored as hashes.


@dataclass(frozen=True)
class TurnedAway:
    """A credential that is no longer valid; the message says since when and what to do."""

    message: str
    is_node: bool = True
