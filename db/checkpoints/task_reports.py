"""Work on checkpoints as nodes see it: what they are to do, and what they report."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, aliased

from db.checkpoints.checkpoint_reports import discard
from db.engine import Store
from db.exceptions import NotOwner
from db.lookups import add_history
from db.models import Attempt, Checkpoint, CheckpointTask, Run
from domain.assignments import ResumeFrom
from domain.checkpoint_use.tasks import (
    ENDED_STATES,
    CheckpointTaskReport,
    DesiredCheckpointTask,
    TaskKind,
    merged_name,
)
from domain.scheduling import resizing
from domain.spec import RunSpec

_OTHER = aliased(Checkpoint)
# Built once, which takes longer than running it: every node asks again and again.
_OPEN = (
    select(CheckpointTask, Checkpoint, _OTHER, Attempt, Run)
    .join(Checkpoint, Checkpoint.id == CheckpointTask.checkpoint_id)
    .join(Attempt, Attempt.fence == Checkpoint.fence)
    .join(Run, Run.id == Attempt.run_id)
    .outerjoin(_OTHER, _OTHER.id == CheckpointTask.other_id)
    .where(CheckpointTask.node_id == bindparam("node_id"), CheckpointTask.ended_at.is_(None))
    .where(Run.deleted_at.is_(None))
    .order_by(CheckpointTask.id)
)


def desired_tasks(session: Session, node_id: str, fence: int | None = None) -> list[DesiredCheckpointTask]:
    """The tasks that a node is to do, the oldest first, or those of checkpoints of an attempt."""
    rows = session.execute(_OPEN, {"node_id": node_id})
    return [
        DesiredCheckpointTask(
            task_id=task.id, kind=TaskKind(task.kind), run_id=run.id, attempt=attempt.number, fence=attempt.fence,
            node_rank=checkpoint.node_rank, uid=attempt.uid or "", by=run.by or "",
            spec=resizing.effective(RunSpec.model_validate(run.spec), attempt.changes),
            sources=[source_of(one) for one in (checkpoint, other) if one is not None],
            format=task.options.get("format", "safetensors"), target=task.options.get("target", ""),
            is_private=task.options.get("visibility") != "public", is_cancelled=task.cancel_requested_at is not None,
        )
        for task, checkpoint, other, attempt, run in rows
        if fence in (None, attempt.fence)
    ]  # fmt: skip


def source_of(checkpoint: Checkpoint) -> ResumeFrom:
    """Say what a node downloads, and where."""
    return ResumeFrom(
        checkpoint_id=checkpoint.id,
        name=checkpoint.path,
        sha256=checkpoint.sha256,
        size_bytes=checkpoint.size_bytes,
        download_path=f"/api/worker/checkpoints/{checkpoint.id}/file",
    )


class Reported(NamedTuple):
    """What follows from a report."""

    run_id: str
    dropped: list[int]
    """The ids of checkpoints whose bytes are to be deleted: what arrived of a merge that did not succeed."""


def reported(
    store: Store, node_id: str, fence: int, task_id: int, report: CheckpointTaskReport, now: float
) -> Reported:
    """Store a node's report; late and repeated ones change nothing. Raises NotOwner where the node has no such task."""
    with store.write(f"checkpoint task {task_id}") as session:
        task = session.get(CheckpointTask, task_id)
        checkpoint = session.get(Checkpoint, task.checkpoint_id) if task else None
        if task is None or checkpoint is None or (task.node_id, checkpoint.fence) != (node_id, fence):
            raise NotOwner(f"Checkpoint task {task_id} is not this node's: it was deleted, or never was.")
        attempt = session.get_one(Attempt, checkpoint.fence)
        if task.state in ENDED_STATES:
            return Reported(attempt.run_id, [])
        for name, value in report.model_dump().items():
            setattr(task, name, value)
        if report.state in ENDED_STATES:
            task.ended_at, task.doing = now, None
        if (text := _history_text(task, checkpoint)) is not None:
            add_history(session, attempt.run_id, attempt.number, now, text)
        return Reported(attempt.run_id, drop_partial(session, task, now))


def drop_partial(session: Session, task: CheckpointTask, now: float) -> list[int]:
    """Delete what arrived of a merge that has ended without success; return the ids, whose bytes are to be deleted."""
    if task.kind != TaskKind.MERGE or task.state not in ("failed", "cancelled"):
        return []
    path = merged_name(session.get_one(Checkpoint, task.checkpoint_id).path, task.options["format"])
    merged = select(Checkpoint).filter_by(merged_from=task.checkpoint_id, path=path, complete=False)
    partial = list(session.scalars(merged))
    discard(session, partial, now)
    for checkpoint in partial:
        session.delete(checkpoint)
    return [checkpoint.id for checkpoint in partial]


def _history_text(task: CheckpointTask, checkpoint: Checkpoint) -> str | None:
    """The line of a push, or of a merge that failed; a merged checkpoint itself has one when it arrives."""
    if task.kind == TaskKind.PUSH and task.state == "succeeded":
        return f"checkpoint {checkpoint.path} was pushed to {task.options['target']}"
    if task.kind == TaskKind.MERGE and task.state == "failed":
        return f"checkpoint {checkpoint.path} could not be merged: {task.message}"
    return None
