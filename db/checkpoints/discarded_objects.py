"""Objects to delete from the bucket, remembered until they are deleted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, Checkpoint, Discarded


def discard(session: Session, checkpoints: Sequence[Checkpoint], now: float) -> None:
    """Mark the checkpoints' objects for deletion, as part of the caller's transaction."""
    for checkpoint in checkpoints:
        if checkpoint.location is not None:
            session.merge(Discarded(location=checkpoint.location, discarded_at=now))


def discarded(store: Store, at_most: int) -> list[str]:
    """Locations of objects to delete, the oldest first."""
    oldest = select(Discarded.location).order_by(Discarded.discarded_at).limit(at_most)
    with store.read() as session:
        return list(session.scalars(oldest))


def deleted(store: Store, location: str) -> None:
    """Forget an object that was deleted from its bucket."""
    with store.write() as session:
        session.execute(delete(Discarded).where(Discarded.location == location))


def give_up_uploads(store: Store, before: float, now: float) -> None:
    """Discard incomplete checkpoints whose upload began, and whose attempt ended, before `before`."""
    with store.read() as session:
        if session.scalars(_abandoned(before).limit(1)).first() is None:
            return
    with store.write() as session:
        abandoned = list(session.scalars(_abandoned(before)))
        discard(session, abandoned, now)
        for checkpoint in abandoned:
            checkpoint.upload_id, checkpoint.received_bytes = None, 0


def _abandoned(before: float) -> Select[Checkpoint]:
    ended = select(Attempt.fence).where(Attempt.ended_at < before)
    on_its_way = select(Checkpoint).where(Checkpoint.complete.is_(False), Checkpoint.upload_id.is_not(None))
    return on_its_way.where(Checkpoint.upload_began_at < before, Checkpoint.fence.in_(ended))
