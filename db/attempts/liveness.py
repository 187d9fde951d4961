"""What the end of an attempt waits for: nodes, silent or not, and the time that their processes have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, Node, Task
from domain.liveness import is_silent
from domain.messages import TERMINAL_STATES, Reason
from domain.preflight import names
from domain.spec import RunSpec
from domain.text.formats import agree

_PENDING = (
    select(Task.fence, Node.id, Node.name, Node.last_seen)
    .join(Node, Node.id == Task.node_id)
    .where(Task.fence.in_(bindparam("fences", expanding=True)), Task.state.not_in(TERMINAL_STATES))
    .order_by(Task.fence, Task.node_rank)
)


class PendingNode(NamedTuple):
    """A node whose task of an attempt has not ended."""

    node: str
    silent_s: float


def pending_nodes(session: Session, fences: Sequence[int], now: float) -> dict[int, list[PendingNode]]:
    """Nodes with a task that has not ended, by fence, in the order of their node ranks."""
    nodes: dict[int, list[PendingNode]] = {}
    for fence, node_id, name, last_seen in session.connection().execute(_PENDING, {"fences": fences}) if fences else ():
        silent_s = now - last_heartbeat(session, node_id, last_seen)
        nodes.setdefault(fence, []).append(PendingNode(name, max(0.0, silent_s)))
    return nodes


def last_heartbeat(session: Session, node_id: str, last_seen: float) -> float:
    """The time of a node's last heartbeat: the stored `last_seen`, or a later one not stored yet."""
    unstored: Callable[[str], float] | None = session.info.get("heard_of")
    return max(last_seen, unstored(node_id)) if unstored else last_seen


def names_of_silent_nodes(store: Store, fence: int, now: float) -> str:
    """The names of an attempt's silent nodes, as a list in a sentence."""
    with store.read() as session:
        return names([node.node for node in silent_nodes(pending_nodes(session, [fence], now).get(fence, []))])


def silent_nodes(nodes: Sequence[PendingNode]) -> list[PendingNode]:
    """The nodes without contact."""
    return [node for node in nodes if is_silent(node.silent_s)]


def end_waits_for(nodes: Sequence[PendingNode]) -> str | None:
    """waits for gpu-1, and for gpu-2, which has been silent for 14 s"""
    silent = silent_nodes(nodes)
    alive = [node.node for node in nodes if node not in silent]
    clauses = [f"for {names(alive)}"] if alive else []
    if silent:
        verb, silent_s = agree(len(silent), "has", "have"), max(node.silent_s for node in silent)
        silent_names = names([node.node for node in silent])
        clauses.append(f"for {silent_names}, which {verb} been silent for {silent_s:.0f} s")
    return f"waits {', and '.join(clauses)}" if clauses else None


GIVEN_UP_S = 10.0
"""The limit after a lost node: ranks that hang in a collective operation cannot save."""


def end_grace_s(attempt: Attempt, spec: RunSpec) -> float:
    """Seconds from the request to end an attempt to SIGKILL."""
    is_given_up = attempt.end_reason == Reason.NODE_LOST and attempt.stop_requested_at is None
    return min(GIVEN_UP_S, spec.stop_grace_s) if is_given_up else spec.stop_grace_s


def task_grace_s(attempt: Attempt, task: Task, spec: RunSpec) -> float:
    """Seconds from the request to end one task to SIGKILL; short for a task that was lost with its node."""
    return min(GIVEN_UP_S, spec.stop_grace_s) if task.lost_at is not None else end_grace_s(attempt, spec)
