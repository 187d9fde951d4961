"""Apply a run's restart policy when an attempt ends."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.attempts.new_attempt import open_next_attempt
from db.history import add_history
from db.models import Attempt, Checkpoint, Run, Series
from domain.messages import SCRIPT_KINDS, State
from domain.recovery import FailedAttempt, Leave, decide_restart
from domain.spec import RunSpec


def carry_on(session: Session, attempt: Attempt, now: float) -> int | None:
    """Open the next attempt if the run's spec says so; return its number, else None.

    It belongs to the transaction in which the attempt ended, so that a run that continues is never seen as ended."""
    has_failed_on_the_way = attempt.state == State.FAILED and attempt.rollback is not None
    if is_resizing(attempt) and (attempt.state == State.STOPPED or has_failed_on_the_way):
        why = attempt.rollback["why"] if attempt.rollback else "continues on the available nodes"
        return open_next_attempt(session, attempt.run_id, now, None, why=why, restarts=attempt.restarts)
    if attempt.state != State.FAILED or attempt.stop_requested_at is not None:
        return None
    spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
    if not (spec.max_restarts or spec.elastic or spec.on_hang == "resume"):
        return None
    decision = decide_restart(spec, _failures(session, attempt.run_id))
    if isinstance(decision, Leave):
        if decision.why:
            add_history(session, attempt.run_id, attempt.number, now, decision.why)
        return None
    return open_next_attempt(
        session, attempt.run_id, now, None,
        why=decision.why, restarts=decision.restarts, pause_s=decision.pause_s,
    )  # fmt: skip


def is_resizing(attempt: Attempt) -> bool:
    """Whether its end was requested only to continue on other nodes, or from before a spike."""
    return attempt.resize_requested_at is not None and attempt.stop_requested_at is None


def _failures(session: Session, run_id: str) -> list[FailedAttempt]:
    """The latest attempts that failed in a row, newest first; at most 64."""
    failures = []
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc())
    for attempt in session.scalars(newest.limit(64)):
        if attempt.state != State.FAILED:
            break
        failures.append(_failure(session, attempt))
    return failures


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
    """Whether the attempt made a step, by the probe's series or by its logged ones."""
    of_attempt = select(func.max(Series.last_step)).where(Series.fence == attempt.fence)
    if session.scalar(of_attempt.where(Series.source == "probe")):
        return True
    start = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    logged = session.scalar(of_attempt.where(Series.source.in_(SCRIPT_KINDS)))
    return logged is not None and logged > ((start.step if start else None) or 0)
