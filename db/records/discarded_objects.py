"""Objects that nobody wants any more, remembered until their bucket has let go of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, Checkpoint, Discarded


def discard(session: Session, checkpoints: Sequence[Checkpoint], now: float) -> None:
    """Their objects are to be deleted, with whatever transaction this is part of."""
    for checkpoint in checkpoints:
        if checkpoint.location is not None:
            session.merge(Discarded(location=checkpoint.location, discarded_at=now))


def discarded(store: Store, at_most: int) -> list[str]:
    """Objects that are still to be deleted, those that wait longest first."""
    oldest = select(Discarded.location).order_by(Discarded.discarded_at).limit(at_most)
    with store.read() as session:
        return list(session.scalars(oldest))


def deleted(store: Store, location: str) -> None:
    """An object is gone from its bucket."""
    with store.write() as session:
        session.execute(delete(Discarded).where(Discarded.location == location))


def give_up_uploads(store: Store, before: float, now: float) -> None:
    """Discard what came of checkpoints that never arrived whole: begun and their attempts ended before that time."""
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
