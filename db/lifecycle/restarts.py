"""What follows from a failure by a run's own policy, so that nobody has to be awake for it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.lifecycle.new_attempt import open_next_attempt
from db.models import Attempt, Checkpoint, Run, Series
from db.records.history import add_history
from domain.messages import State
from domain.recovery.restart_policy import FailedAttempt, Leave, what_follows
from domain.spec import RunSpec


def carry_on(session: Session, attempt: Attempt, now: float) -> int | None:
    """In the transaction in which an attempt ended: open the next one if the run's spec says so; its number.

    So nobody ever sees a run that goes on as one that has ended."""
    if attempt.state == State.STOPPED and is_resizing(attempt):
        why = "goes on with the nodes there are"
        return open_next_attempt(session, attempt.run_id, now, None, why=why, restarts=attempt.restarts)
    if attempt.state != State.FAILED or attempt.stop_requested_at is not None:
        return None
    spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
    if not (spec.max_restarts or spec.elastic or spec.on_hang == "resume"):
        return None
    follows = what_follows(spec, _failures(session, attempt.run_id))
    if isinstance(follows, Leave):
        if follows.why:
            add_history(session, attempt.run_id, attempt.number, now, follows.why)
        return None
    return open_next_attempt(
        session, attempt.run_id, now, None,
        why=follows.why, restarts=follows.restarts, pause_s=follows.pause_s,
    )  # fmt: skip


def is_resizing(attempt: Attempt) -> bool:
    """It was told to end for the next attempt; by nobody for good."""
    return attempt.resize_requested_at is not None and attempt.stop_requested_at is None


def _failures(session: Session, run_id: str) -> list[FailedAttempt]:
    """Of the newest attempts, as many as failed one after the other."""
    found = []
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc())
    for attempt in session.scalars(newest.limit(64)):
        if attempt.state != State.FAILED:
            break
        found.append(_failure(session, attempt))
    return found


def _failure(session: Session, attempt: Attempt) -> FailedAttempt:
    return FailedAttempt(
        reason=attempt.reason,
        sentence=_in_a_line(attempt.message or attempt.reason or "it failed"),
        key=_key(attempt.reason, attempt.error or {}),
        has_stepped=_has_stepped(session, attempt),
        restarts=attempt.restarts,
    )


def _in_a_line(sentence: str) -> str:
    return sentence.removesuffix(".").replace("The ", "the ", 1) if sentence.startswith("The ") else sentence


def _key(reason: str | None, error: dict[str, Any]) -> tuple[object, ...]:
    return reason, *(error.get(name) for name in ("exception", "exit_code", "file", "line"))


def _has_stepped(session: Session, attempt: Attempt) -> bool:
    """By the probe, which counts the attempt's own steps, or by what was logged."""
    of_attempt = select(func.max(Series.last_step)).where(Series.fence == attempt.fence)
    if session.scalar(of_attempt.where(Series.source == "probe")):
        return True
    start = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    logged = session.scalar(of_attempt.where(Series.source != "probe"))
    return logged is not None and logged > ((start.step if start else None) or 0)
