"""Roll runs back: request the end of an attempt, after which the run goes on from an earlier checkpoint."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.history import add_history
from db.models import Attempt, Checkpoint, Run
from domain.recovery import Rollback
from domain.scheduling.resizing import effective
from domain.spec import RunSpec


def rollbacks_of(session: Session, run_id: str) -> list[tuple[int, Rollback]]:
    """The attempts of a run that were rolled back, by number, oldest first."""
    query = select(Attempt.number, Attempt.rollback).where(Attempt.run_id == run_id)
    query = query.where(Attempt.rollback.is_not(None)).order_by(Attempt.number)
    return [(number, Rollback.model_validate(rollback)) for number, rollback in session.execute(query)]


def changes_before(session: Session, run_id: str, attempt: int) -> dict[str, Any]:
    """The fields of the spec that rollbacks of earlier attempts changed."""
    earlier = [rollback for number, rollback in rollbacks_of(session, run_id) if number < attempt]
    return dict(earlier[-1].changes) if earlier else {}


def spec_after_rollbacks(session: Session, run_id: str) -> RunSpec | None:
    """A run's spec with what rollbacks changed, including its secrets; None where there is no such run."""
    run = session.get(Run, run_id)
    if run is None:
        return None
    rollbacks = rollbacks_of(session, run_id)
    return effective(RunSpec.model_validate(run.spec), rollbacks[-1][1].changes if rollbacks else None)


def origin_limit(session: Session, attempt: Attempt, why: str, changes: dict[str, Any]) -> Rollback:
    """The rollback of an attempt without any good point: the checkpoint that it began with is left behind."""
    origin = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    if origin is None:
        return Rollback(good_step=-1, good_at=0.0, bad_at=0.0, why=why, changes=changes)
    step = None if origin.step is None else origin.step - 1
    at = origin.written_at
    return Rollback(good_step=step, good_at=at, bad_at=at, why=why, changes=changes)


def request_rollback(session: Session, attempt: Attempt, rollback: Rollback, message: str, now: float) -> None:
    """End an attempt so that the run goes on from before; `message`: to go back to before step 70."""
    attempt.rollback = rollback.model_dump(mode="json")
    attempt.resize_requested_at, attempt.resize_message = now, message
    add_history(session, attempt.run_id, attempt.number, now, f"ends {message}")
