"""What people ask of checkpoints: that its node sends an incomplete one again."""

from __future__ import annotations

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import WrongState
from db.lookups import add_history
from db.models import Attempt, Checkpoint, Node, Run, Task
from db.people import audit
from db.people.ownership import ObjectKind
from db.people.permission import no_such, permit
from domain.assignments import Resend
from domain.messages import State
from domain.people.audit import AuditAction
from domain.people.roles import Action


def request_resend(store: Store, checkpoint_id: int, now: float) -> tuple[str, str]:
    """Have the checkpoint's node send it again; return the ids of its run and of the node.

    Raises NoSuchCheckpoint, Denied; WrongState if it is complete, its attempt still runs, or its node is gone."""
    with store.write() as session:
        permit(session, Action.ACT, ObjectKind.CHECKPOINT, str(checkpoint_id))
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None:
            raise no_such(ObjectKind.CHECKPOINT, str(checkpoint_id))
        attempt = session.get_one(Attempt, checkpoint.fence)
        if checkpoint.deleted_at is not None:
            raise WrongState(f"Checkpoint {checkpoint.path} was deleted: nothing of it is sent again.")
        if checkpoint.complete:
            raise WrongState(f"Checkpoint {checkpoint.path} is complete: it can be downloaded.")
        if not State(attempt.state).is_terminal:
            raise WrongState(f"Checkpoint {checkpoint.path} is on its way: its attempt has not ended.")
        node = _node_of(session, checkpoint)
        if node is None:
            raise WrongState(f"The node of checkpoint {checkpoint.path} was removed: it cannot be sent.")
        checkpoint.resend_requested_at, checkpoint.trouble = now, None
        add_history(session, attempt.run_id, attempt.number, now, f"checkpoint {checkpoint.path} is asked for again")
        run = session.get_one(Run, attempt.run_id)
        audit.record_of_run(session, AuditAction.CHECKPOINT_ASKED, run, {"checkpoint": checkpoint.path})
        return attempt.run_id, node.id


# Built once, which takes longer than running it: every node asks again and again.
_RESENDS = (
    select(Checkpoint, Attempt)
    .join(Attempt, Attempt.fence == Checkpoint.fence)
    .join(Run, Run.id == Attempt.run_id)
    .join(Task, (Task.fence == Checkpoint.fence) & (Task.node_rank == Checkpoint.node_rank))
    .where(Run.deleted_at.is_(None))
    .where(Task.node_id == bindparam("node_id"), Checkpoint.resend_requested_at.is_not(None))
    .where(Checkpoint.complete.is_(False))
    .order_by(Checkpoint.id)
)


def resends(session: Session, node_id: str) -> list[Resend]:
    """Return the checkpoints that this node is asked to send again, in the order of their ids."""
    return [
        Resend(
            checkpoint_id=checkpoint.id, run_id=attempt.run_id, attempt=attempt.number, fence=attempt.fence,
            node_rank=checkpoint.node_rank, uid=attempt.uid or "", path=checkpoint.path, sha256=checkpoint.sha256,
        )
        for checkpoint, attempt in session.execute(_RESENDS, {"node_id": node_id})
    ]  # fmt: skip


def _node_of(session: Session, checkpoint: Checkpoint) -> Node | None:
    of_task = select(Node).join(Task, Task.node_id == Node.id)
    of_task = of_task.where(Task.fence == checkpoint.fence, Task.node_rank == checkpoint.node_rank)
    return session.scalars(of_task.where(Node.removed_at.is_(None))).first()
