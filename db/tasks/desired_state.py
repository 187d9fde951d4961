"""Desired state of a node: the complete list of what it should be running."""

from __future__ import annotations

from sqlalchemy import bindparam, or_, select
from sqlalchemy.orm import Session

from db import identity
from db.attempts.liveness import task_grace_s
from db.engine import Store
from db.lookups import attempt_spec, task_is_live
from db.models import Attempt, Checkpoint, Run, Task
from db.preflight import start_gate
from db.ranks import profiles
from domain.assignments import Assignment, ResumeFrom
from domain.messages import State
from domain.scheduling import resizing

# Built once, which takes longer than running it: every node asks again and again.
_TASKS_OF_NODE = (
    select(Task, Attempt, Run.by)
    .join(Attempt, Attempt.fence == Task.fence)
    .join(Run, Run.id == Attempt.run_id)
    .where(Task.node_id == bindparam("node_id"))
    .where(or_(Task.lost_at.is_not(None), task_is_live()))
    .order_by(Task.fence)
)


def assignments(store: Store, node_id: str, fence: int | None = None) -> list[Assignment]:
    """All tasks that a node should be running or stopping, or its one of an attempt; always the complete list.

    A task that ended while its node was lost stays in the list until the node has confirmed its end."""
    with store.read() as session:
        tasks = session.execute(_TASKS_OF_NODE, {"node_id": node_id})
        return [_assignment(session, task, attempt, by) for task, attempt, by in tasks if fence in (None, task.fence)]


def _assignment(session: Session, task: Task, attempt: Attempt, by: str | None) -> Assignment:
    """The assignment of a task: stop when its end was requested, or another task has failed or stopped; else run."""
    others = session.scalars(select(Task.state).where(Task.fence == task.fence)).all()
    broken = bool({State.FAILED, State.STOPPED} & {State(state) for state in others})
    spec = resizing.effective(attempt_spec(session, attempt), attempt.changes)
    return Assignment(
        run_id=attempt.run_id,
        attempt=attempt.number,
        fence=attempt.fence,
        node_rank=task.node_rank,
        uid=attempt.uid or "",
        store=identity.current(session).identity,
        action="stop" if attempt.ending_since is not None or broken else "run",
        spec=spec,
        devices=list(task.devices),
        device_kind="cuda" if task.device_kind == "cuda" else "cpu",
        by=by or "",
        master_addr=attempt.master_addr,
        master_port=attempt.master_port,
        grace_s=task_grace_s(attempt, task, spec),
        may_start=start_gate.may_start(session, attempt.fence),
        is_known=task.reported_at is not None,
        stacks_requested_at=attempt.stacks_requested_at,
        profile=profiles.request_of(session, task),
        resume_from=_resume_from(session, attempt.resume_checkpoint_id),
    )


def _resume_from(session: Session, checkpoint_id: int | None) -> ResumeFrom | None:
    checkpoint = session.get(Checkpoint, checkpoint_id) if checkpoint_id else None
    if checkpoint is None:
        return None
    return ResumeFrom(
        checkpoint_id=checkpoint.id,
        name=checkpoint.path,
        sha256=checkpoint.sha256,
        size_bytes=checkpoint.size_bytes,
        download_path=f"/api/worker/checkpoints/{checkpoint.id}/file",
    )
