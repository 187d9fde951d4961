"""The scheduler as a pure function: a queue and the free devices in, assignments or a reason in words out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Waiting:
    """A queued attempt and what it needs."""

    fence: int
    run_id: str
    nodes: int
    devices_per_node: int


@dataclass(frozen=True)
class Offer:
    """A node that is alive, and its devices nobody uses."""

    node_id: str
    name: str
    total: int
    free: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Devices of one node, given to one attempt."""

    node_id: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """What `place` decided: who starts where, and why the others wait."""

    placed: dict[int, list[Placement]] = field(default_factory=dict)
    waiting: dict[int, str] = field(default_factory=dict)


def place(queue: Sequence[Waiting], offers: Sequence[Offer]) -> Decision:
    """Give each attempt all its devices at once or none, first come, first served."""
    decision = Decision()
    free = {offer.node_id: list(offer.free) for offer in offers}
    blocked_by: Waiting | None = None
    for waiting in queue:
        chosen = None if blocked_by else _choose(waiting, offers, free)
        if chosen is None:
            decision.waiting[waiting.fence] = _why(waiting, offers, free, blocked_by)
            blocked_by = blocked_by or waiting
            continue
        decision.placed[waiting.fence] = chosen
    return decision


def _choose(waiting: Waiting, offers: Sequence[Offer], free: dict[str, list[str]]) -> list[Placement] | None:
    """The fullest nodes that still have room, so that large free nodes stay whole."""
    able = [o for o in offers if len(free[o.node_id]) >= waiting.devices_per_node]
    able.sort(key=lambda o: (len(free[o.node_id]), o.name))
    if len(able) < waiting.nodes:
        return None
    chosen = []
    for offer in able[: waiting.nodes]:
        taken = free[offer.node_id][: waiting.devices_per_node]
        free[offer.node_id] = free[offer.node_id][waiting.devices_per_node :]
        chosen.append(Placement(offer.node_id, tuple(taken)))
    return chosen


def _why(
    waiting: Waiting, offers: Sequence[Offer], free: dict[str, list[str]], blocked_by: Waiting | None
) -> str:
    if blocked_by:
        return f"waits behind run {blocked_by.run_id}, which came first"
    need = f"needs {_nodes(waiting.nodes)} with {waiting.devices_per_node} free {_slots(waiting)}"
    if not offers:
        return f"{need}; no node is alive"
    best = ", ".join(f"{o.name} has {len(free[o.node_id])} of {o.total} free" for o in list(offers)[:4])
    return f"{need}; {best}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _slots(waiting: Waiting) -> str:
    return "slot" if waiting.devices_per_node == 1 else "slots"
