"""Open the next attempt of a run, from a checkpoint or from the beginning, and roll a run back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db import acting
from db.attempts.deliveries import sending_checkpoints
from db.budgets import charges
from db.engine import Store
from db.lookups import add_history, latest_attempt
from db.models import Attempt, Charge, Checkpoint, Run
from domain.messages import Delivery, Reason, State
from domain.recovery import Rollback, SavedFile, UnclearCheckpoint, choose_checkpoint, is_left_behind, rank_0s
from domain.requests.errors import InvalidRequest
from domain.scheduling.resizing import effective
from domain.spec import RunSpec
from domain.text.formats import part_of

POLICY = "the run's policy"


def open_next_attempt(
    session: Session,
    run_id: str,
    now: float,
    checkpoint: str | None,
    *,
    why: str | None = None,
    restarts: int = 0,
    pause_s: float = 0.0,
) -> int:
    """Open the next attempt from a checkpoint (default: the latest complete one), or from the beginning.

    Automatic restarts pass the reason, the number of restarts and a pause, and keep their place in the queue.
    Returns the attempt's number. Raises NoSuchRun, InvalidRequest, UnclearCheckpoint, OverBudget."""
    previous = latest_attempt(session, run_id)
    number = previous.number + 1
    awaits = checkpoint is None and bool(sending_checkpoints(session, previous.fence))
    origin = None if awaits else find_checkpoint(session, run_id, checkpoint)  # what is awaited is chosen then
    charge = charges.of_next(session, session.get_one(Run, run_id), previous, now, is_asked=why is None)
    attempt = open_attempt(session, run_id, number, origin.id if origin else None, now, charge)
    attempt.awaits_checkpoints_of = previous.fence if awaits else None
    if why:  # no person asked: the previous attempt's bound stays
        attempt.only_project = previous.only_project
    changes = (previous.changes or {}) | changes_before(session, run_id, number)
    attempt.restarts, attempt.changes = restarts, changes or None  # until it is placed
    if why:
        attempt.turn_since = previous.turn_since or previous.created_at
    if pause_s:
        attempt.not_before = attempt.expected_start_at = now + pause_s
        attempt.waiting_for = f"waits {pause_s:g} s before it restarts"
    if awaits:
        attempt.waiting_for = "waits for the last checkpoint, which is being sent"
    start = "when the last checkpoint has arrived" if awaits else origin_words(origin)
    add_history(session, run_id, number, now, f"{f'{why};' if why else 'resumed'} {start}")
    return number


@contextmanager
def by_policy(session: Session, run_id: str, via: str = POLICY) -> Iterator[None]:
    """Act for the run's person in a block: what the run's settings decide on their own."""
    with acting.on_behalf(session.scalar(select(Run.by).where(Run.id == run_id)), via):
        yield


def open_attempt(
    session: Session, run_id: str, number: int, checkpoint_id: int | None, now: float, charge: Charge | None = None
) -> Attempt:
    """Open an attempt, with what it is charged to a token's budget."""
    attempt = Attempt(
        run_id=run_id,
        number=number,
        created_at=now,
        state=State.QUEUED,
        resume_checkpoint_id=checkpoint_id,
        restarts=0,
        by=acting.rights().by,
        via=acting.rights().via,
        only_project=acting.rights().only_project,
    )
    session.add(attempt)
    if charge is not None:
        session.flush()  # gives the attempt its fence
        charge.fence = attempt.fence
        session.add(charge)
    return attempt


def origin_words(checkpoint: Checkpoint | None) -> str:
    """Return where an attempt starts: from step 40 of last.pt."""
    if checkpoint is None:
        return "from the beginning: it has no complete checkpoint"
    return f"from {checkpoint.path}" if checkpoint.step is None else f"from step {checkpoint.step} of {checkpoint.path}"


def find_checkpoint(session: Session, run_id: str, name: str | None) -> Checkpoint | None:
    """The newest complete checkpoint with this path, file name or id; by step, then by time.

    Without a name any that a training saved and no rollback leaves behind; None when the run has none.
    Raises InvalidRequest when `name` matches none, UnclearCheckpoint where a name is needed."""
    complete = (
        select(Checkpoint, Attempt.number)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .where(Attempt.run_id == run_id, Checkpoint.complete, Checkpoint.deleted_at.is_(None))
        .order_by(Checkpoint.fence.desc(), func.coalesce(Checkpoint.step, -1).desc())
        .order_by(Checkpoint.written_at.desc(), Checkpoint.id.desc())
    )
    candidates = session.execute(complete).all()
    if name is None:
        left = rollbacks_of(session, run_id)
        saved = [(c, number) for c, number in candidates if _is_saved(c)]
        files = {_file(c): c for c, number in saved if not is_left_behind(left, number, c.step, c.written_at)}
        chosen = choose_checkpoint([*files], _world_size(session, run_id))
        return files[chosen] if chosen else None
    ids = [c for c, _ in candidates if name == str(c.id)]
    if named := ids or [c for c, _ in candidates if _is_named(c, name)]:
        return _first_of_rank_0(named)
    raise InvalidRequest(
        "checkpoint", f"checkpoint: run {run_id} has no complete checkpoint {name!r}{_way_back(session, run_id, name)}."
    )


def _way_back(session: Session, run_id: str, name: str) -> str:
    """How to get a checkpoint of that name back where one is in the bin."""
    paths = select(Checkpoint.path).join(Attempt, Attempt.fence == Checkpoint.fence)
    in_bin = paths.where(Attempt.run_id == run_id, Checkpoint.complete, Checkpoint.deleted_at.is_not(None))
    if any(name in (path, PurePosixPath(path).name) for path in session.scalars(in_bin)):
        return f": it was deleted, and `rankzero checkpoint restore {run_id} NAME` brings it back"
    return ""


def _is_saved(checkpoint: Checkpoint) -> bool:
    """Whether a training saved it; a merged one lacks what a resume needs besides the weights."""
    return checkpoint.merged_from is None


def _is_named(checkpoint: Checkpoint, name: str) -> bool:
    """Whether it has this path, or is saved under this file name, which a merged one may have, too."""
    return name == checkpoint.path or (_is_saved(checkpoint) and name == PurePosixPath(checkpoint.path).name)


def _first_of_rank_0(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """The first, or what rank 0 wrote at the same moment, where each rank writes its own."""
    files = {_file(c): c for c in reversed(checkpoints)}
    return files[rank_0s(_file(checkpoints[0]), [*files])]


def _file(checkpoint: Checkpoint) -> SavedFile:
    return SavedFile(checkpoint.path, checkpoint.step, checkpoint.written_at, checkpoint.node_rank, checkpoint.fence)


def _world_size(session: Session, run_id: str) -> int:
    return RunSpec.model_validate(session.get_one(Run, run_id).spec).world_size


# Attempts that wait for a checkpoint of the one before them, which a node is still sending.


def choose_awaited(store: Store, now: float, lost_after_s: float) -> list[str]:
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


# Roll runs back: request the end of an attempt, after which the run continues from an earlier checkpoint.


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
    """End an attempt so that the run continues from before; `message`: to go back to before step 70."""
    attempt.rollback = rollback.model_dump(mode="json")
    attempt.resize_requested_at, attempt.resize_message = now, message
    add_history(session, attempt.run_id, attempt.number, now, f"ends {message}")
