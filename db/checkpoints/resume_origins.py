"""Read where a resume begins: its checkpoint, and what the attempt that wrote it trained under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.attempts.new_attempt import changes_before, find_checkpoint
from db.engine import Store
from db.lookups import latest_attempt
from db.models import Attempt, Checkpoint, Node, Run, Task
from domain.checkpoint_use.resuming import SavedState
from domain.checkpoints.contents import CheckpointContents
from domain.scheduling.resizing import effective
from domain.spec import RunSpec

Interpreter = dict[str, Any]


@dataclass(frozen=True)
class Conditions:
    """What an attempt trains under; the spec includes its secrets, which must not be shown."""

    spec: RunSpec
    interpreter: Interpreter | None
    """None where no node has reported it."""


def origin(store: Store, run_id: str, name: str | None) -> tuple[SavedState, Conditions] | None:
    """The checkpoint that a resume begins with (default: the latest), and under what it was written.

    None where the run has no complete one. Raises InvalidRequest, UnclearCheckpoint."""
    with store.read() as session:
        checkpoint = find_checkpoint(session, run_id, name)
        return _origin(session, checkpoint) if checkpoint else None


def next_attempt(store: Store, run_id: str) -> Conditions:
    """Return the conditions of a run's next attempt, as far as they are known before it is placed. Raises NoSuchRun."""
    with store.read() as session:
        latest = latest_attempt(session, run_id)
        spec = RunSpec.model_validate(session.get_one(Run, run_id).spec)
        changes = changes_before(session, run_id, latest.number + 1)
        return Conditions(effective(spec, changes), _interpreter_now(session, latest))


def start_of(store: Store, fence: int) -> tuple[SavedState, Conditions, Conditions] | None:
    """The checkpoint that an attempt began from, under what it was written, and under what the attempt trains."""
    with store.read() as session:
        attempt = session.get(Attempt, fence)
        checkpoint = session.get(Checkpoint, attempt.resume_checkpoint_id or 0) if attempt else None
        if attempt is None or checkpoint is None:
            return None
        return *_origin(session, checkpoint), _conditions(session, attempt)


def _origin(session: Session, checkpoint: Checkpoint) -> tuple[SavedState, Conditions]:
    attempt = session.get_one(Attempt, checkpoint.fence)
    saved = SavedState(checkpoint.path, checkpoint.step, attempt.number, CheckpointContents.of_stored(checkpoint.holds))
    return saved, _conditions(session, attempt, checkpoint.node_rank)


def _conditions(session: Session, attempt: Attempt, node_rank: int = 0) -> Conditions:
    spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
    tasks = select(Task.interpreter).where(Task.fence == attempt.fence).order_by(Task.node_rank != node_rank)
    interpreter = next((one for one in session.scalars(tasks) if one and "path" in one), None)
    return Conditions(effective(spec, attempt.changes), interpreter)


def _interpreter_now(session: Session, latest: Attempt) -> Interpreter | None:
    """The interpreter of the latest attempt, with the versions that its node has now where that is its default."""
    tasks = select(Task.interpreter, Node.info).join(Node, Node.id == Task.node_id)
    for interpreter, info in session.execute(tasks.where(Task.fence == latest.fence).order_by(Task.node_rank)):
        if interpreter and "path" in interpreter:
            default: Interpreter = (info or {}).get("interpreter") or {}
            return {**interpreter, **(default if default.get("path") == interpreter["path"] else {})}
    return None
