"""Attempts that wait for a checkpoint of the one before them, which a node is still sending."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.attempts.deliveries import sending_checkpoints
from db.attempts.new_attempt import find_checkpoint, origin_words
from db.engine import Store
from db.lookups import add_history
from db.models import Attempt
from domain.messages import Delivery, Reason, State
from domain.recovery import UnclearCheckpoint
from domain.text.formats import part_of


def choose(store: Store, now: float, lost_after_s: float) -> list[str]:
    """Choose the checkpoint of each queued attempt that waited for one and no longer has to; return their runs.

    It no longer has to once all are stored, their sending was ended, or their node is lost."""
    query = select(Attempt).where(Attempt.state == State.QUEUED, Attempt.awaits_checkpoints_of.is_not(None))
    with store.read() as session:
        if session.scalars(query.limit(1)).first() is None:
            return []
    with store.write() as session:
        return [
            attempt.run_id
            for attempt in session.scalars(query).all()
            if _choose_start(session, attempt, now, now - lost_after_s)
        ]


def _choose_start(session: Session, attempt: Attempt, now: float, lost_since: float) -> bool:
    """Choose where an attempt starts unless it has to wait longer; return whether anything of it has changed."""
    if sending := sending_checkpoints(session, attempt.awaits_checkpoints_of or 0, lost_since):
        before, attempt.waiting_for = attempt.waiting_for, _waiting_words(*sending[0])
        return attempt.waiting_for != before
    attempt.awaits_checkpoints_of = None
    try:
        origin = find_checkpoint(session, attempt.run_id, None)
    except UnclearCheckpoint as unclear:
        _end(session, attempt, str(unclear), now)
        return True
    attempt.waiting_for = "waits a moment before it restarts" if (attempt.not_before or 0.0) > now else None
    attempt.resume_checkpoint_id = origin.id if origin else None
    add_history(session, attempt.run_id, attempt.number, now, f"starts {origin_words(origin)}")
    return True


def _end(session: Session, attempt: Attempt, message: str, now: float) -> None:
    """End an attempt that has not started, because a person has to name the checkpoint."""
    attempt.state, attempt.reason, attempt.message, attempt.ended_at = State.FAILED, Reason.RESUME_FAILED, message, now
    attempt.waiting_for = attempt.expected_start_at = attempt.not_before = None
    add_history(session, attempt.run_id, attempt.number, now, f"failed: {message}")


def _waiting_words(node: str, delivery: Delivery) -> str:
    sent = f": {part_of(delivery.sent_bytes, delivery.total_bytes)}" if delivery.total_bytes else ""
    return f"waits for the last checkpoint, which {node} is sending{sent}"
