"""Desired state of a node: the complete list of what it should be running."""

from __future__ import annotations

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from db import identity
from db.attempts.liveness import task_grace_s
from db.checkpoints.task_reports import source_of
from db.engine import Store
from db.exceptions import Superseded
from db.lookups import task_is_live, task_is_wanted, task_of_node
from db.models import Attempt, Checkpoint, Run, Task, WatchedRun
from db.preflight import start_gate
from db.ranks import profiles
from domain.assignments import Assignment, ResumeFrom
from domain.messages import TERMINAL_STATES, State
from domain.scheduling import resizing
from domain.spec import RunSpec

# Built once, which takes longer than running it: every node asks again and again.
_TASKS_OF_NODE = (
    select(Task, Attempt, Run)
    .join(Attempt, Attempt.fence == Task.fence)
    .join(Run, Run.id == Attempt.run_id)
    .where(Task.node_id == bindparam("node_id"))
    .where(task_is_wanted())
    .order_by(Task.fence)
)
_LIVE_TASKS_OF_NODE = _TASKS_OF_NODE.where(task_is_live(), Run.deleted_at.is_(None))


def assignments(store: Store, node_id: str, fence: int | None = None) -> list[Assignment]:
    """All tasks that a node should be running or stopping, or its one of an attempt; always the complete list.

    A task that ended while its node was lost stays in the list until the node has confirmed its end; any other that
    ended, until what it has left is sent."""
    return _assignments(store, _TASKS_OF_NODE, node_id, fence)


def live_assignments(store: Store, node_id: str, fence: int | None = None) -> list[Assignment]:
    """The tasks of a node, or its one of an attempt, that have not ended: what a token may read code and wheels for."""
    return _assignments(store, _LIVE_TASKS_OF_NODE, node_id, fence)


def live_run(store: Store, node_id: str, fence: int, node_rank: int) -> str:
    """The run of a task that has not ended. Raises NotOwner, Superseded."""
    with store.read() as session:
        task, attempt = task_of_node(session, node_id, fence, node_rank)
        is_deleted = session.get_one(Run, attempt.run_id).deleted_at is not None
        if is_deleted or {State(task.state), State(attempt.state)} & TERMINAL_STATES:
            raise Superseded(f"Attempt {attempt.run_id}/{attempt.number} has ended.")
        return attempt.run_id


def assignment_of(store: Store, fence: int, node_id: str) -> Assignment:
    """The one task of a guest, also when it has ended long ago."""
    query = select(Task, Attempt, Run).join(Attempt, Attempt.fence == Task.fence).join(Run, Run.id == Attempt.run_id)
    with store.read() as session:
        task, attempt, run = session.execute(query.where(Task.fence == fence, Task.node_id == node_id)).one()
        return _assignment(session, task, attempt, run)


def _assignments(store: Store, query: Select[Task, Attempt, Run], node_id: str, fence: int | None) -> list[Assignment]:
    with store.read() as session:
        tasks = session.execute(query, {"node_id": node_id})
        return [_assignment(session, task, attempt, run) for task, attempt, run in tasks if fence in (None, task.fence)]


def _assignment(session: Session, task: Task, attempt: Attempt, run: Run) -> Assignment:
    """The assignment of a task: stop when its end was requested, its run is deleted, or another task has failed or
    stopped; else run."""
    others = session.scalars(select(Task.state).where(Task.fence == task.fence)).all()
    broken = bool({State.FAILED, State.STOPPED} & {State(state) for state in others})
    is_ending = attempt.ending_since is not None or run.deleted_at is not None
    is_to_stop = (is_ending or broken) and _is_ours_to_end(session, attempt)
    spec = resizing.effective(RunSpec.model_validate(run.spec), attempt.changes)
    return Assignment(
        run_id=attempt.run_id,
        attempt=attempt.number,
        fence=attempt.fence,
        node_rank=task.node_rank,
        uid=attempt.uid or "",
        store=identity.current(session).identity,
        action="stop" if is_to_stop else "run",
        spec=spec,
        devices=list(task.devices),
        device_kind="cuda" if task.device_kind == "cuda" else "cpu",
        by=run.by or "",
        master_addr=attempt.master_addr,
        master_port=attempt.master_port,
        grace_s=task_grace_s(attempt, task, spec),
        may_start=start_gate.may_start(session, attempt.fence),
        is_known=task.reported_at is not None,
        stacks_requested_at=attempt.stacks_requested_at,
        ends_delivery=attempt.delivery_end_requested_at is not None,
        profile=profiles.request_of(session, task),
        resume_from=_resume_from(session, attempt.resume_checkpoint_id),
    )


def _is_ours_to_end(session: Session, attempt: Attempt) -> bool:
    """Whether the attempt's processes may be ended: of a watched run, only because a person asked for it."""
    watched = session.get(WatchedRun, attempt.run_id)
    return watched is None or (attempt.stop_requested_at is not None and not watched.look_only)


def _resume_from(session: Session, checkpoint_id: int | None) -> ResumeFrom | None:
    checkpoint = session.get(Checkpoint, checkpoint_id) if checkpoint_id else None
    return None if checkpoint is None else source_of(checkpoint)
