"""Look up rows by the names that people and workers use, and add to the history of a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, Table, and_, bindparam, not_, or_, select
from sqlalchemy.orm import Session

from db import acting
from db.exceptions import NoSuchNode, NoSuchRun, NotOwner, Superseded
from db.models import Attempt, HistoryEntry, Node, Run, Task
from domain.messages import LIVE_STATES, TERMINAL_STATES
from domain.spec import RunSpec
from domain.watching.guests import PREFIX

_PART = (
    select(Task, Attempt)
    .join(Attempt, Attempt.fence == Task.fence)
    .where(Task.fence == bindparam("fence"), Task.node_rank == bindparam("node_rank"))
)
"""Built once: every report of a worker asks it."""
_TASKS, _ATTEMPTS = cast(Table, Task.__table__), cast(Table, Attempt.__table__)
_OWNED = (
    select(_TASKS.c.node_rank, _ATTEMPTS.c.fence, _ATTEMPTS.c.run_id, _ATTEMPTS.c.number)
    .join_from(_TASKS, _ATTEMPTS, _ATTEMPTS.c.fence == _TASKS.c.fence)
    .where(_TASKS.c.fence.in_(bindparam("fences", expanding=True)), _TASKS.c.node_id == bindparam("node_id"))
)


class AttemptKey(NamedTuple):
    """What names an attempt."""

    fence: int
    run_id: str
    number: int


def latest_attempt(session: Session, run_id: str) -> Attempt:
    """The attempt whose state is the run's. Raises NoSuchRun."""
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc()).limit(1)
    attempt = session.scalars(newest).first()
    if attempt is None:
        raise NoSuchRun(f"There is no run {run_id!r}.")
    return attempt


def node_named(session: Session, node: str) -> Node:
    """A node of ours by its name or id; guests leave by themselves. Raises NoSuchNode."""
    named = select(Node).where(or_(Node.name == node, Node.id == node), Node.removed_at.is_(None), is_ours())
    match = session.scalars(named.order_by(Node.id != node)).first()
    if match is None:
        raise NoSuchNode(f"There is no node {node!r}.")
    return match


def attempt_scope(fence: int) -> str:
    """The scope of a transaction that touches only one attempt."""
    return f"attempt {fence}"


def task_of_node(session: Session, node_id: str, fence: int, node_rank: int) -> tuple[Task, Attempt]:
    """A task and its attempt. Raises NotOwner, Superseded."""
    row = session.execute(_PART, {"fence": fence, "node_rank": node_rank}).first()
    if row is None:
        raise Superseded(f"Attempt {fence} no longer exists.")
    task, attempt = row
    if task.node_id != node_id:
        raise NotOwner(f"Part {node_rank} of attempt {fence} belongs to another node.")
    return task, attempt


def attempts_of_node(
    session: Session, node_id: str, tasks: Collection[tuple[int, int]]
) -> dict[tuple[int, int], AttemptKey | NotOwner | Superseded]:
    """The attempt of each task (fence, node rank), or why the node may not write to it.

    Nothing else is read of them: points and bytes come several times a second."""
    rows = session.execute(_OWNED, {"fences": [*{fence for fence, _ in tasks}], "node_id": node_id})
    owned = {(fence, rank): AttemptKey(fence, run_id, number) for rank, fence, run_id, number in rows}
    return {task: owned.get(task) or _why_not(session, node_id, task) for task in tasks}


def _why_not(session: Session, node_id: str, task: tuple[int, int]) -> NotOwner | Superseded:
    try:
        task_of_node(session, node_id, *task)
    except (NotOwner, Superseded) as error:
        return error
    raise AssertionError(f"task {task} belongs to the node")


def task_is_live() -> ColumnElement[bool]:
    return and_(Task.state.not_in(TERMINAL_STATES), Attempt.state.not_in(TERMINAL_STATES))


def task_is_wanted() -> ColumnElement[bool]:
    """A condition on tasks with their attempts: their node has still to do with them.

    It runs or ends them, has to prove that a lost one has ended, or sends what an ended one has left."""
    return or_(Task.lost_at.is_not(None), task_is_live(), Task.delivery.is_not(None))


def is_ours() -> ColumnElement[bool]:
    """A condition on nodes: no guest, of which nobody here decides."""
    return not_(Node.pool.startswith(PREFIX))


def has_devices() -> ColumnElement[bool]:
    """A condition on tasks: their devices are not free.

    The devices of a lost node become free once it has reported that no process is left; those of an attempt that is
    being resized, once all of its tasks have ended, so that no other run comes between."""
    ending = select(Attempt.fence).where(Attempt.resize_requested_at.is_not(None), Attempt.state.in_(LIVE_STATES))
    return or_(Task.state.in_(LIVE_STATES), Task.lost_at.is_not(None), Task.fence.in_(ending))


def devices_of_others(foreign: Collection[str] | None, unknown: Collection[Any] | None) -> set[str]:
    """The devices of a node that other programs use, or attempts unknown to this store."""
    return {*(foreign or ()), *(device for attempt in unknown or () for device in attempt.get("devices", ()))}


def attempt_spec(session: Session, attempt: Attempt) -> RunSpec:
    return RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)


# The history of a run, a line for each event.

DASHBOARD = "dashboard"


def add_history(session: Session, run_id: str, attempt: int | None, now: float, text: str) -> None:
    """Add a line to the run's history, signed by the actor; by the dashboard, where it acts alone."""
    rights = acting.rights()
    via = rights.via or (DASHBOARD if rights.by is None else None)
    session.add(HistoryEntry(run_id=run_id, attempt=attempt, at=now, text=text, by=rights.by, via=via))
