"""Deliveries: the data that nodes have still to send of ended attempts, as it is reported, shown and ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, bindparam, select
from sqlalchemy.orm import Session

from db.attempts.liveness import last_heartbeat
from db.lookups import add_history
from db.models import Attempt, Node, Task
from domain.liveness import is_silent
from domain.messages import Delivery
from domain.text.formats import part_of
from domain.views import DeliveryView, delivery_view

_OPEN = (
    select(Attempt.run_id, Attempt.delivery_end_requested_at, Task.delivery, Node.id, Node.name, Node.last_seen)
    .join(Attempt, Attempt.fence == Task.fence)
    .join(Node, Node.id == Task.node_id)
    .where(Attempt.run_id.in_(bindparam("run_ids", expanding=True)), Task.delivery.is_not(None))
    .order_by(Task.fence, Task.node_rank)
)
"""Built once: every list of runs asks it."""
_SENDING = select(Task.fence).where(Task.fence.in_(bindparam("fences", expanding=True)), Task.delivery.is_not(None))
_WITH_POINTS = _SENDING.where(Task.delivery["has_points"].as_boolean())


def reported(session: Session, attempt: Attempt, task: Task, delivery: Delivery | None, now: float) -> None:
    """Store what a node has still to send of its ended task; None: nothing any more."""
    if task.delivery is not None and delivery is None:
        node = session.get_one(Node, task.node_id).name
        is_ended = attempt.delivery_end_requested_at is not None
        text = f"{node} has ended sending what was left" if is_ended else f"{node} has sent everything"
        add_history(session, attempt.run_id, attempt.number, now, text)
    task.delivery = delivery.model_dump(mode="json") if delivery else None


def end(session: Session, run_id: str, now: float) -> bool:
    """End the sending of what a run's ended attempts have left; return whether that is new.

    Nodes that can be heard end it themselves, and say what stays with them; a silent one is not waited for."""
    query = (
        select(Attempt, Task, Node)
        .join(Task, Task.fence == Attempt.fence)
        .join(Node, Node.id == Task.node_id)
        .where(Attempt.run_id == run_id, Task.delivery.is_not(None))
    )
    is_new = False
    for attempt, task, node in session.execute(query).all():
        is_new |= attempt.delivery_end_requested_at is None
        attempt.delivery_end_requested_at = attempt.delivery_end_requested_at or now
        if is_silent(now - last_heartbeat(session, node.id, node.last_seen)):
            sent = part_of(task.delivery["sent_bytes"], task.delivery["total_bytes"]) if task.delivery else ""
            text = f"sending ended: {node.name} is silent, and had sent {sent}; the rest stays there"
            add_history(session, run_id, attempt.number, now, text)
            task.delivery = None
    return is_new


def views(session: Session, run_ids: Sequence[str], now: float) -> dict[str, DeliveryView]:
    """Return the deliveries of these runs that are not complete, by run id."""
    deliveries, silent, ending = dict[str, list[Delivery]](), dict[str, list[str]](), set[str]()
    rows = session.execute(_OPEN, {"run_ids": [*run_ids]}) if run_ids else ()
    for run_id, end_requested_at, delivery, node_id, node, last_seen in rows:
        deliveries.setdefault(run_id, []).append(Delivery.model_validate(delivery))
        if is_silent(now - last_heartbeat(session, node_id, last_seen)):
            silent.setdefault(run_id, []).append(node)
        if end_requested_at is not None:
            ending.add(run_id)
    return {
        run_id: delivery_view(of_run, silent.get(run_id, []), run_id in ending) for run_id, of_run in deliveries.items()
    }


def awaiting_points(session: Session, fences: Collection[int]) -> set[int]:
    """The attempts among these that have points on their way: their curves are not complete, even after their end."""
    return set(session.scalars(_WITH_POINTS, {"fences": [*fences]})) if fences else set()


def are_open(session: Session, run_id: str) -> bool:
    """Whether something is still to be sent of one of a run's attempts."""
    return session.execute(_OPEN, {"run_ids": [run_id]}).first() is not None


def open_among(session: Session, fences: Collection[int]) -> set[int]:
    """The attempts among these of which a node has still something to send."""
    return set(session.scalars(_SENDING, {"fences": [*fences]})) if fences else set()


def are_sent() -> ColumnElement[bool]:
    """A condition on attempts: nothing is sent of them any more."""
    return Attempt.fence.not_in(select(Task.fence).where(Task.delivery.is_not(None)))


def sending_checkpoints(session: Session, fence: int, lost_since: float | None = None) -> list[tuple[str, Delivery]]:
    """The nodes that are sending checkpoints of an attempt, with what is left; not those silent since `lost_since`."""
    query = select(Node, Task.delivery).join(Task, Task.node_id == Node.id)
    query = query.where(Task.fence == fence, Task.delivery.is_not(None)).order_by(Task.node_rank)
    rows = [(node, Delivery.model_validate(delivery)) for node, delivery in session.execute(query)]
    return [
        (node.name, delivery)
        for node, delivery in rows
        if delivery.has_checkpoints
        and (lost_since is None or last_heartbeat(session, node.id, node.last_seen) > lost_since)
    ]
