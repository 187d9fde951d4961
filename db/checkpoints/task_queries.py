"""Read work on checkpoints as pages and the API show it."""

from __future__ import annotations

from typing import cast

from sqlalchemy import Select, or_, select
from sqlalchemy.orm import Session, aliased, defer

from db.engine import Store
from db.models import Attempt, Checkpoint, CheckpointTask, Node
from db.people.ownership import ObjectKind
from db.people.permission import no_such, permit
from db.people.visibility import sees_everything, visible_fences
from domain.checkpoint_use.tasks import CheckpointTaskView, TaskKind, TaskState
from domain.people.roles import Action

_OTHER = aliased(Checkpoint)
_TASKS = (
    select(CheckpointTask, Checkpoint.path, _OTHER.path, Node.name)
    .join(Checkpoint, Checkpoint.id == CheckpointTask.checkpoint_id)
    .outerjoin(_OTHER, _OTHER.id == CheckpointTask.other_id)
    .outerjoin(Node, Node.id == CheckpointTask.node_id)
)


def task_view(store: Store, task_id: int) -> CheckpointTaskView:
    """One task as it is now. Raises NoSuchCheckpointTask, Denied."""
    with store.read() as session:
        permit(session, Action.SEE, ObjectKind.CHECKPOINT_TASK, str(task_id))
        if views := _views(session, _TASKS.where(CheckpointTask.id == task_id)):
            if views[0].other_id is not None:  # the result also names its tensors
                permit(session, Action.SEE, ObjectKind.CHECKPOINT, str(views[0].other_id))
            return views[0]
    raise no_such(ObjectKind.CHECKPOINT_TASK, str(task_id))


def tasks_of_run(store: Store, run_id: str, kind: TaskKind | None = None) -> list[CheckpointTaskView]:
    """The tasks about a run's checkpoints, newest first, without their results."""
    query = _TASKS.join(Attempt, Attempt.fence == Checkpoint.fence).where(Attempt.run_id == run_id)
    if not sees_everything():
        seen = select(Attempt.fence).where(visible_fences()).correlate(None)
        query = query.where(or_(CheckpointTask.other_id.is_(None), _OTHER.fence.in_(seen)))
    if kind is not None:
        query = query.where(CheckpointTask.kind == kind.value)
    with store.read() as session:
        query = query.options(defer(CheckpointTask.result))  # megabytes each
        return _views(session, query.order_by(CheckpointTask.id.desc()).limit(MOST_LISTED), with_results=False)


MOST_LISTED = 100


def _views(
    session: Session, query: Select[CheckpointTask, str, str, str], with_results: bool = True
) -> list[CheckpointTaskView]:
    return [
        CheckpointTaskView(
            id=task.id, kind=TaskKind(task.kind), checkpoint_id=task.checkpoint_id, name=name, other_id=task.other_id,
            other_name=other_name, node=node or "that was removed", by=task.by, asked_at=task.asked_at,
            state=cast(TaskState, task.state), doing=_doing(task), done_bytes=task.done_bytes,
            total_bytes=task.total_bytes,
            message=task.message, result=task.result if with_results else None, merged_id=task.merged_id,
            ended_at=task.ended_at, options=task.options,
        )
        for task, name, other_name, node in session.execute(query)
    ]  # fmt: skip


def _doing(task: CheckpointTask) -> str | None:
    return "is being cancelled" if task.cancel_requested_at is not None and task.ended_at is None else task.doing
