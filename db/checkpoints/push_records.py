"""What a push of a checkpoint needs of the store: what is pushed, for whom, and what its model card says."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.exceptions import NotOwner, WrongState
from db.models import Attempt, Checkpoint, CheckpointTask, Run, Task
from db.people import audit
from db.people.ownership import ObjectKind
from db.people.permission import no_such, permit
from db.people.users import rights_in
from domain.checkpoint_use.tasks import ENDED_STATES, TaskKind
from domain.checkpoints.names import is_folder
from domain.messages import PhaseEnd
from domain.people.audit import AuditAction
from domain.people.rights import NOBODY, PROGRAM
from domain.people.roles import Action


class Pushable(NamedTuple):
    """A checkpoint that can be pushed, and the project of its run."""

    checkpoint_id: int
    project: str


def to_push(store: Store, checkpoint_id: int, *, as_saved: bool) -> Pushable:
    """The checkpoint to push in place of this one: itself where it was merged or is to go as it is, else its merge.

    Raises NoSuchCheckpoint, Denied; WrongState where it was never merged."""
    with store.read() as session:
        permit(session, Action.ACT, ObjectKind.CHECKPOINT, str(checkpoint_id))
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None:
            raise no_such(ObjectKind.CHECKPOINT, str(checkpoint_id))
        run = session.get_one(Run, session.get_one(Attempt, checkpoint.fence).run_id)
        if as_saved or checkpoint.merged_from is not None or checkpoint.path.endswith(".safetensors"):
            return Pushable(checkpoint.id, run.project)
        if (merged := _newest_merge(session, checkpoint_id)) is not None:
            return Pushable(merged, run.project)
        raise WrongState(
            f"Checkpoint {checkpoint.path} is {'a folder of shards' if is_folder(checkpoint.path) else 'a pickle'}, "
            f"which a hub's readers cannot load: merge it first (rankzero checkpoint merge {run.id} "
            f"{checkpoint.path}), or push it with --as-saved."
        )


def _newest_merge(session: Session, checkpoint_id: int) -> int | None:
    merged = select(Checkpoint.id).where(
        Checkpoint.merged_from == checkpoint_id, Checkpoint.complete, Checkpoint.deleted_at.is_(None)
    )
    return session.scalars(merged.order_by(Checkpoint.id.desc())).first()


class OpenPush(NamedTuple):
    """A push that a node works on."""

    checkpoint_id: int
    run_id: str
    project: str
    by: str | None
    options: dict[str, Any]


def open_push(store: Store, node_id: str, fence: int, task_id: int) -> OpenPush:
    """The push that a node is about to do, which gets its secrets now; the audit log names them.

    Raises NotOwner for another node's or an ended one; WrongState where its person may not act on the run any more."""
    with store.write() as session:
        task = session.get(CheckpointTask, task_id)
        checkpoint = session.get(Checkpoint, task.checkpoint_id) if task else None
        if (
            task is None or checkpoint is None or task.kind != TaskKind.PUSH or task.state in ENDED_STATES
            or (task.node_id, checkpoint.fence) != (node_id, fence)
        ):  # fmt: skip
            raise NotOwner(f"Checkpoint task {task_id} is no push of this node, or has ended.")
        run = session.get_one(Run, session.get_one(Attempt, fence).run_id)
        rights = PROGRAM if task.by is None else rights_in(session, task.by) or NOBODY
        if not rights.may(Action.ACT, run.project, run.by):
            raise WrongState(f"{task.by}, who asked for this push, may no longer act on run {run.id}.")
        with acting.on_behalf(task.by, f"checkpoint task {task.id}"):
            for secret in task.options["secrets"].values():
                owner = f"project {secret['project']}" if secret["user"] is None else secret["user"]
                about = {"run": run.id, "to": task.options["target"]}
                audit.record(
                    session, AuditAction.SECRET_GIVEN, f"secret {secret['name']} of {owner}", run.project, about
                )
        return OpenPush(checkpoint.id, run.id, run.project, task.by, dict(task.options))


def merge_result(store: Store, checkpoint_id: int) -> dict[str, Any] | None:
    """The result of the merge that made a checkpoint; None where it was not merged."""
    query = select(CheckpointTask.result).where(CheckpointTask.merged_id == checkpoint_id)
    with store.read() as session:
        return session.scalars(query.order_by(CheckpointTask.id.desc())).first()


def staged_data(store: Store, fence: int) -> list[str]:
    """Return the data that the nodes of an attempt staged, in words with digests, each once."""
    with store.read() as session:
        timelines = session.scalars(select(Task.timeline).where(Task.fence == fence).order_by(Task.node_rank))
        ends = [PhaseEnd.model_validate(end) for timeline in timelines for end in timeline or ()]
    notes = (end.note.replace(", here already", "") for end in ends if end.phase == "data" and end.note)
    return list(dict.fromkeys(notes))
