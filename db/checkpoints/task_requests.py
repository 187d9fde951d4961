"""Work on checkpoints that people ask for: which node does it, and what is done already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db import acting
from db.attempts.liveness import last_heartbeat
from db.checkpoints.task_reports import drop_partial
from db.engine import Store
from db.exceptions import WrongState
from db.models import Attempt, Checkpoint, CheckpointTask, Node, Run, Task
from db.people import audit
from db.people.ownership import ObjectKind
from db.people.permission import no_such, permit
from domain import protocol
from domain.checkpoint_use.tasks import DONE_HERE, ENDED_STATES, TaskKind
from domain.liveness import is_silent
from domain.people.audit import AuditAction
from domain.people.roles import Action


class AskedTask(NamedTuple):
    """A task, the run that it is about, and the node that does it."""

    id: int
    run_id: str
    node_id: str
    dropped: tuple[int, ...] = ()
    """The ids of checkpoints whose bytes are to be deleted: what arrived of a cancelled merge."""


def ask(
    store: Store,
    kind: TaskKind,
    checkpoint_id: int,
    now: float,
    options: Mapping[str, Any] | None = None,
    other_id: int | None = None,
) -> AskedTask:
    """Have a node do this with a checkpoint; an equal task that is under way, or whose result counts still, is shared.

    Raises NoSuchCheckpoint, Denied; WrongState where a checkpoint is not complete, or no node can do it."""
    options = dict(options or {})
    with store.write() as session:
        checkpoint, run = _source(session, checkpoint_id, Action.ACT)
        if other_id is not None:
            _source(session, other_id, Action.SEE)
        if kind is TaskKind.MERGE and checkpoint.merged_from is not None:
            raise WrongState(f"Checkpoint {checkpoint.path} is merged already: merge the one that it was merged from.")
        task = _equal_task(session, kind, checkpoint_id, other_id, options)
        if task is not None and _is_stuck(session, task, now):
            _node_for(session, checkpoint, kind, now)  # without another node it waits on
            task.state, task.ended_at, task.message, task = "cancelled", now, AWAY, None
        if task is None:
            node = _node_for(session, checkpoint, kind, now)
            rights = acting.rights()
            task = CheckpointTask(
                kind=kind.value, checkpoint_id=checkpoint_id, other_id=other_id, options=options, node_id=node.id,
                by=rights.by, via=rights.via, asked_at=now,
            )  # fmt: skip
            session.add(task)
            session.flush()
        about = {"checkpoint": checkpoint.path} | {k: v for k, v in options.items() if isinstance(v, str)}
        audit.record_of_run(session, AuditAction(f"checkpoint-{kind}"), run, about)
        return AskedTask(task.id, run.id, task.node_id)


def cancel(store: Store, task_id: int, now: float) -> AskedTask:
    """Ask a node to end a task; one that no node works on ends at once. Raises NoSuchCheckpointTask, Denied."""
    with store.write() as session:
        permit(session, Action.ACT, ObjectKind.CHECKPOINT_TASK, str(task_id))
        task = session.get(CheckpointTask, task_id)
        if task is None:
            raise no_such(ObjectKind.CHECKPOINT_TASK, str(task_id))
        checkpoint = session.get_one(Checkpoint, task.checkpoint_id)
        run = session.get_one(Run, session.get_one(Attempt, checkpoint.fence).run_id)
        if task.state not in ENDED_STATES and task.cancel_requested_at is None:
            task.cancel_requested_at = now
            about = {"checkpoint": checkpoint.path, "kind": task.kind}
            audit.record_of_run(session, AuditAction.CHECKPOINT_TASK_CANCELLED, run, about)
        node = session.get(Node, task.node_id)
        if task.state == "waiting" or (task.state == "running" and (node is None or _is_away(session, node, now))):
            task.state, task.ended_at = "cancelled", now
        return AskedTask(task.id, run.id, task.node_id, tuple(drop_partial(session, task, now)))


AWAY = "Its node is away: another one does it anew."


def _is_stuck(session: Session, task: CheckpointTask, now: float) -> bool:
    """Whether the node that works on a task is away."""
    if task.state in ENDED_STATES:
        return False
    node = session.get(Node, task.node_id)
    return node is None or _is_away(session, node, now)


def _source(session: Session, checkpoint_id: int, action: Action) -> tuple[Checkpoint, Run]:
    """A checkpoint to work on, and its run. Raises NoSuchCheckpoint, Denied, WrongState."""
    permit(session, action, ObjectKind.CHECKPOINT, str(checkpoint_id))
    checkpoint = session.get(Checkpoint, checkpoint_id)
    if checkpoint is None:
        raise no_such(ObjectKind.CHECKPOINT, str(checkpoint_id))
    if not checkpoint.complete:
        raise WrongState(f"Checkpoint {checkpoint.path} is not complete yet: try again once all of it has arrived.")
    if checkpoint.deleted_at is not None:
        raise WrongState(f"Checkpoint {checkpoint.path} was deleted: restore it first.")
    return checkpoint, session.get_one(Run, session.get_one(Attempt, checkpoint.fence).run_id)


def _equal_task(
    session: Session, kind: TaskKind, checkpoint_id: int, other_id: int | None, options: dict[str, Any]
) -> CheckpointTask | None:
    """The newest task of this kind and these options that is under way, or whose result counts still."""
    same = select(CheckpointTask).filter_by(kind=kind.value, checkpoint_id=checkpoint_id, other_id=other_id)
    same = same.where(CheckpointTask.cancel_requested_at.is_(None)).order_by(CheckpointTask.id.desc())
    equal = (task for task in session.scalars(same) if task.options == options)
    return next((task for task in equal if task.state not in ENDED_STATES or _counts_still(session, task)), None)


def _counts_still(session: Session, task: CheckpointTask) -> bool:
    """Whether the result of an ended task need not be made again; a push always looks what is there."""
    if task.state != "succeeded" or task.kind == TaskKind.PUSH:
        return False
    merged = session.get(Checkpoint, task.merged_id) if task.merged_id is not None else None
    is_there = merged is not None and merged.complete and merged.deleted_at is None
    return is_there if task.kind == TaskKind.MERGE else True


def _node_for(session: Session, checkpoint: Checkpoint, kind: TaskKind, now: float) -> Node:
    """The node that saved the checkpoint if it is in contact, else another one with the fewest tasks.

    Raises WrongState where none is, or where none of them can do this."""
    own = select(Task.node_id).where(Task.fence == checkpoint.fence, Task.node_rank == checkpoint.node_rank)
    tasks = func.count(CheckpointTask.id)
    is_open = (CheckpointTask.node_id == Node.id) & CheckpointTask.ended_at.is_(None)
    query = select(Node).outerjoin(CheckpointTask, is_open).where(Node.removed_at.is_(None), Node.pool == "")
    query = query.group_by(Node.id).order_by(Node.id.not_in(own), tasks, Node.name)
    here = [node for node in session.scalars(query) if not _is_away(session, node, now)]
    able = [node for node in here if protocol.is_spoken(node.protocol) and kind in node.info.get(DONE_HERE, ())]
    if able:
        return able[0]
    if here:
        raise WrongState(
            f"The worker of node {here[0].name} is older than this dashboard and cannot {kind.value} checkpoints: "
            "upgrade it and start it again."
        )
    raise WrongState(
        f"No node is in contact to {kind.value} checkpoint {checkpoint.path}, which needs a Python with torch: start "
        "a worker (those of Slurm jobs do not count), then ask again."
    )


def _is_away(session: Session, node: Node, now: float) -> bool:
    return node.removed_at is not None or is_silent(now - last_heartbeat(session, node.id, node.last_seen))
