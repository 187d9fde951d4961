"""Open the next attempt of a run, from a checkpoint or from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.attempts.rollbacks import changes_before, rollbacks_of
from db.history import add_history
from db.lookups import latest_attempt
from db.models import Attempt, Checkpoint
from domain.errors import InvalidRequest
from domain.messages import State
from domain.recovery import SavedFile, is_left_behind, rank_0s


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
    Returns the attempt's number. Raises NoSuchRun, InvalidRequest."""
    origin, previous = find_checkpoint(session, run_id, checkpoint), latest_attempt(session, run_id)
    number = previous.number + 1
    attempt = open_attempt(session, run_id, number, origin.id if origin else None, now)
    changes = (previous.changes or {}) | changes_before(session, run_id, number)
    attempt.restarts, attempt.changes = restarts, changes or None  # until it is placed
    if why:
        attempt.turn_since = previous.turn_since or previous.created_at
    if pause_s:
        attempt.not_before = attempt.expected_start_at = now + pause_s
        attempt.waiting_for = f"waits {pause_s:g} s before it restarts"
    add_history(session, run_id, number, now, f"{f'{why};' if why else 'resumed'} {_origin(origin)}")
    return number


def open_attempt(session: Session, run_id: str, number: int, checkpoint_id: int | None, now: float) -> Attempt:
    attempt = Attempt(
        run_id=run_id,
        number=number,
        created_at=now,
        state=State.QUEUED,
        resume_checkpoint_id=checkpoint_id,
        restarts=0,
    )
    session.add(attempt)
    return attempt


def _origin(checkpoint: Checkpoint | None) -> str:
    if checkpoint is None:
        return "from the beginning: it has no complete checkpoint"
    return f"from {checkpoint.path}" if checkpoint.step is None else f"from step {checkpoint.step} of {checkpoint.path}"


def find_checkpoint(session: Session, run_id: str, name: str | None) -> Checkpoint | None:
    """The newest complete checkpoint with this path, file name or id; by step, then by time.

    Without a name any, but none that a rollback leaves behind; None when the run has none.
    Raises InvalidRequest when `name` matches none."""
    complete = (
        select(Checkpoint, Attempt.number)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .where(Attempt.run_id == run_id, Checkpoint.complete)
        .order_by(Checkpoint.fence.desc(), func.coalesce(Checkpoint.step, -1).desc())
        .order_by(Checkpoint.written_at.desc(), Checkpoint.id.desc())
    )
    candidates = session.execute(complete).all()
    if name is None:
        left = rollbacks_of(session, run_id)
        usable = [c for c, number in candidates if not is_left_behind(left, number, c.step, c.written_at)]
        return _first_of_rank_0(usable) if usable else None
    ids = [c for c, _ in candidates if name == str(c.id)]
    if named := ids or [c for c, _ in candidates if name in (c.path, PurePosixPath(c.path).name)]:
        return _first_of_rank_0(named)
    raise InvalidRequest("checkpoint", f"checkpoint: run {run_id} has no complete checkpoint {name!r}.")


def _first_of_rank_0(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """The first, or what rank 0 wrote at the same moment, where each rank writes its own."""
    fence = checkpoints[0].fence
    files = {SavedFile(c.path, c.step, c.written_at, c.node_rank): c for c in reversed(checkpoints) if c.fence == fence}
    return files[rank_0s(next(reversed(files)), [*files])]
