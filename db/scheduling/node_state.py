"""The nodes as placement sees them: what is free on each, who has the rest, and until when."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from db.models import Attempt, Node, Task
from domain.liveness import ALIVE_WITHIN_S, LOST_AFTER_S
from domain.messages import LIVE_STATES
from domain.protocol import FIRST
from domain.scheduling.models import Allocation, Contact, NodeState


def hosts(
    session: Session,
    now: float,
    ends: Mapping[int, float],
    alive_within_s: float = ALIVE_WITHIN_S,
    lost_after_s: float = LOST_AFTER_S,
) -> list[NodeState]:
    """All known nodes; `ends`: when attempts are expected to end, by fence."""
    taken = (
        select(Task.node_id, Task.devices, Task.fence, Attempt.run_id)
        .join(Attempt, Attempt.fence == Task.fence)
        .where(has_devices())
        .order_by(Task.fence, Task.node_rank)
    )
    holds: dict[str, list[Allocation]] = {}
    for node_id, devices, fence, run_id in session.execute(taken):
        holds.setdefault(node_id, []).append(Allocation(run_id, tuple(devices), ends.get(fence)))
    known = select(
        Node.id, Node.name, Node.devices, Node.labels, Node.last_seen, Node.drain_requested_at,
        Node.foreign_devices, Node.pool, Node.protocol,
        Node.unknown_attempts,
    ).where(Node.removed_at.is_(None))  # fmt: skip
    known = known.where(~Node.pool.startswith("slurm:") | (Node.last_seen >= now - alive_within_s))
    found = []
    for row in session.execute(known):
        node_id, name, devices, labels, last_seen, drain_requested_at, foreign, pool, protocol, unknown = row
        silent_s = now - last_seen
        contact: Contact = "alive" if silent_s <= alive_within_s else "no contact"
        on_it = tuple(holds.get(node_id, ()))
        used = {device for hold in on_it for device in hold.devices}
        others = ({*(foreign or ())} | unknown_devices(unknown)) - used
        ids = [device["id"] for device in devices if device["id"] not in used]
        found.append(
            NodeState(
                node_id=node_id,
                name=name,
                free=tuple(device for device in ids if device not in others),
                holds=on_it,
                foreign=sum(device in others for device in ids),
                kind="cuda" if devices and devices[0]["kind"] == "cuda" else "cpu",
                labels=labels,
                contact="lost" if silent_s >= lost_after_s else contact,
                draining=drain_requested_at is not None,
                pool=pool,
                protocol=protocol or FIRST,
            )
        )
    return found


def unknown_devices(unknown: list[Any] | None) -> set[str]:
    """Devices of a node that trainings use which this store does not know."""
    return {device for one in unknown or () for device in one.get("devices", ())}


def has_devices() -> ColumnElement[bool]:
    """Of a part: its devices are not free. A lost node's are, once it has said that no process
    is left; those of an attempt that ends for the next one, when all of it has ended: nobody comes between."""
    ending = select(Attempt.fence).where(
        Attempt.resize_requested_at.is_not(None), Attempt.state.in_(LIVE_STATES)
    )
    return or_(Task.state.in_(LIVE_STATES), Task.lost_at.is_not(None), Task.fence.in_(ending))


def known_hosts(session: Session, now: float) -> list[NodeState]:
    """All nodes, and what of them is in use; not until when."""
    return hosts(session, now, {}, ALIVE_WITHIN_S, math.inf)
