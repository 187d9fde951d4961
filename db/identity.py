"""The store's identity and the attempts it knows: workers may remember more than a restored copy."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.models import Attempt, DeletedAttempt, StoreIdentity


class UnknownAttempt(Exception):
    """A worker reported an attempt that was neither created nor deleted here: an older copy was restored."""

    field = "store"


class Key(NamedTuple):
    """The key of an attempt, unique across stores."""

    fence: int
    label: str
    """RUN/ATTEMPT/UID; the uid is empty for attempts of older versions."""


def current(session: Session) -> StoreIdentity:
    """The store's identity, created where it has none yet."""
    newest = session.scalars(select(StoreIdentity).order_by(StoreIdentity.id.desc()).limit(1)).first()
    return newest or renew(session, "made", 0.0)


def renew(session: Session, origin: str, now: float) -> StoreIdentity:
    """Give the store another identity, so that workers register again."""
    row = StoreIdentity(identity=secrets.token_hex(8), origin=origin, began_at=now)
    session.add(row)
    session.flush()
    return row


def knows(session: Session, key: Key) -> bool:
    """Whether the attempt was created here, even if it was deleted since."""
    run_id, number, uid = [*key.label.split("/"), "", ""][:3]
    row = session.execute(select(Attempt.run_id, Attempt.number, Attempt.uid).where(Attempt.fence == key.fence)).first()
    if row is not None:
        return (row.run_id, str(row.number)) == (run_id, number) and (not uid or uid == (row.uid or uid))
    deleted = session.get(DeletedAttempt, key.fence)
    if deleted is not None:
        return not uid or uid == (deleted.uid or uid)
    return not uid and key.fence <= highest_fence(session)


def highest_fence(session: Session) -> int:
    """The highest known fencing token."""
    existing, deleted = select(func.max(Attempt.fence)), select(func.max(DeletedAttempt.fence))
    return max(session.scalar(existing) or 0, session.scalar(deleted) or 0)
