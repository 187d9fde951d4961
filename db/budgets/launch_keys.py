"""Do once what a program asks for with a key of its own, however often it asks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import delete
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import LaunchKey

KEPT_S = 30 * 24 * 3600.0
"""How long a key is known."""


@dataclass(frozen=True)
class KeyedRequest:
    """A request of the actor: its key, and all that was asked for."""

    key: str
    content: str

    @property
    def place(self) -> tuple[str, str]:
        """The primary key: the person, and the key of what acts for them."""
        text = f"{acting.rights().via}\0{self.key}"
        return acting.name(), hashlib.sha256(text.encode(errors="replace")).hexdigest()

    @property
    def digest(self) -> str:
        """The digest of the request."""
        return hashlib.sha256(self.content.encode(errors="replace")).hexdigest()


@dataclass(frozen=True)
class Earlier:
    """The same request, made before."""

    is_same: bool
    """Whether it asked for the same."""
    run_id: str
    """Empty while it has not been answered."""


def begin(store: Store, request: KeyedRequest, now: float) -> Earlier | None:
    """Claim the key before anything is done, so that of two at once only one does it; return the one before."""
    with store.write() as session:
        session.execute(delete(LaunchKey).where(LaunchKey.created_at < now - KEPT_S))
        row = _row(session, request)
        if row is not None:
            return Earlier(row.digest == request.digest, row.run_id)
        by, key = request.place
        session.add(LaunchKey(by=by, key=key, digest=request.digest, run_id="", created_at=now))
        return None


def answered(store: Store, request: KeyedRequest, run_id: str) -> None:
    """Note the run that the request was answered with."""
    with store.write() as session:
        if (row := _row(session, request)) is not None:
            row.run_id = run_id


def refused(store: Store, request: KeyedRequest) -> None:
    """Free the key of a request that was refused: nothing was done."""
    with store.write() as session:
        if (row := _row(session, request)) is not None:
            session.delete(row)


def _row(session: Session, request: KeyedRequest) -> LaunchKey | None:
    return session.get(LaunchKey, request.place)
