"""Checkpoints that a node merged from another's shards: who may send them, and what they are."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.exceptions import NotOwner
from db.models import Attempt, Checkpoint, CheckpointTask
from domain.checkpoint_use.tasks import ENDED_STATES, TaskKind
from domain.checkpoints.contents import CheckpointContents
from domain.messages import CheckpointOffer


def merge_of(session: Session, node_id: str, fence: int, node_rank: int, task_id: int) -> tuple[Checkpoint, Attempt]:
    """The source of a merge that a node works on, and its attempt: it sends the result, also of another node's shards.

    Raises NotOwner."""
    task = session.get(CheckpointTask, task_id)
    source = session.get(Checkpoint, task.checkpoint_id) if task else None
    if task is None or source is None or not _is_of(task, node_id) or (source.fence, source.node_rank) != (
        fence, node_rank,
    ):  # fmt: skip
        raise NotOwner(f"Checkpoint task {task_id} is not this node's, or has ended: nothing more is taken of it.")
    return source, session.get_one(Attempt, fence)


def is_sent_by(session: Session, node_id: str, checkpoint: Checkpoint) -> bool:
    """Whether a node works on the merge that a checkpoint on its way is the result of."""
    if checkpoint.merged_from is None:
        return False
    merges = select(CheckpointTask).filter_by(checkpoint_id=checkpoint.merged_from, kind=TaskKind.MERGE.value)
    return any(_is_of(task, node_id) for task in session.scalars(merges))


def take_again(checkpoint: Checkpoint, location: str | None) -> None:
    """List a deleted one again, because a person asked for the merge again; it is sent anew if its bytes are gone."""
    checkpoint.deleted_at = checkpoint.deleted_by = checkpoint.deleted_why = None
    if not checkpoint.complete:
        checkpoint.received_bytes, checkpoint.upload_id, checkpoint.location = 0, None, location


def values_of(source: Checkpoint, offer: CheckpointOffer) -> dict[str, object]:
    """The values of a merged checkpoint: step and moment are its source's, and it holds weights alone."""
    of_source = {"merged_from": source.id, "step": source.step, "written_at": source.written_at, "prefix": None}
    offered = offer.model_dump(include={"path", "size_bytes", "sha256"})
    return of_source | offered | {"holds": CheckpointContents(kinds=["model"]).model_dump()}


def _is_of(task: CheckpointTask, node_id: str) -> bool:
    return task.node_id == node_id and task.kind == TaskKind.MERGE and task.state not in ENDED_STATES
