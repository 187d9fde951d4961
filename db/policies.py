"""What follows from a failure by a run's own policy, so that nobody has to be awake for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.models import Attempt, Checkpoint, Run, Series
from db.requests import note, open_next_attempt
from db.spec import RunSpec
from db.states import Reason, State

HANGS_IN_A_ROW = 3
"""A run that hangs so often in a row would do so for ever."""
WOULD_REPEAT = frozenset({Reason.SCRIPT_MISSING, Reason.LAUNCH_FAILED, Reason.RESUME_FAILED})
"""Failures that another attempt certainly meets again."""
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True)
class Failure:
    """A failed attempt, as far as it matters for whether another one may do better."""

    reason: str | None
    sentence: str
    key: tuple[object, ...] = ()
    """What is the same when the same failure comes again."""
    has_stepped: bool = True
    """It made a step beyond the checkpoint it started from."""
    restarts: int = 0


@dataclass(frozen=True)
class Restart:
    """The next attempt is opened."""

    why: str
    restarts: int
    pause_s: float = 0.0


@dataclass(frozen=True)
class Leave:
    """The run stays failed; None where nobody expects anything else."""

    why: str | None = None


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
            note(session, attempt.run_id, attempt.number, now, follows.why)
        return None
    return open_next_attempt(
        session, attempt.run_id, now, None,
        why=follows.why, restarts=follows.restarts, pause_s=follows.pause_s,
    )  # fmt: skip


def is_resizing(attempt: Attempt) -> bool:
    """It was told to end for the next attempt; by nobody for good."""
    return attempt.resize_requested_at is not None and attempt.stop_requested_at is None


def what_follows(spec: RunSpec, failures: Sequence[Failure]) -> Restart | Leave:
    """Pure. `failures`: the newest first, back to what did not fail."""
    newest = failures[0]
    if newest.reason == Reason.HUNG and spec.on_hang == "resume":
        return _after_hang(failures)
    if newest.reason == Reason.NODE_LOST and spec.elastic:
        return Restart(f"goes on with the nodes there are: {newest.sentence}", newest.restarts)
    if not spec.max_restarts:
        return Leave()
    if newest.reason in WOULD_REPEAT:
        return Leave("not restarted: another attempt would fail in the same way")
    if newest.restarts >= spec.max_restarts:
        return Leave(f"not restarted: {newest.restarts} of {spec.max_restarts} restarts are used")
    if _is_the_same_again(failures):
        return Leave("not restarted: it failed as before, without a step beyond what it started from")
    count = newest.restarts + 1
    why = f"restarted ({count} of {spec.max_restarts}): {newest.sentence}"
    return Restart(why, count, _pause_s(failures))


def _after_hang(failures: Sequence[Failure]) -> Restart | Leave:
    in_a_row = failures[:HANGS_IN_A_ROW]
    if len(in_a_row) == HANGS_IN_A_ROW and all(each.reason == Reason.HUNG for each in in_a_row):
        return Leave(f"not resumed: it hung {HANGS_IN_A_ROW} times in a row")
    return Restart("resumed after a hang", failures[0].restarts)


def _is_the_same_again(failures: Sequence[Failure]) -> bool:
    """A node that is lost is no fault of the run: it may happen again and again."""
    newest, *before = failures
    if newest.reason == Reason.NODE_LOST or newest.has_stepped or not before:
        return False
    return newest.key == before[0].key


def _pause_s(failures: Sequence[Failure]) -> float:
    """Nothing after an attempt that got somewhere or lost a node, else longer each time."""
    futile = 0
    for each in failures:
        if each.has_stepped or each.reason == Reason.NODE_LOST:
            break
        futile += 1
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (futile - 1)) if futile else 0.0


def _failures(session: Session, run_id: str) -> list[Failure]:
    """Of the newest attempts, as many as failed one after the other."""
    found = []
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc())
    for attempt in session.scalars(newest.limit(64)):
        if attempt.state != State.FAILED:
            break
        found.append(_failure(session, attempt))
    return found


def _failure(session: Session, attempt: Attempt) -> Failure:
    return Failure(
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
