"""The states of the nodes for placement: free devices, allocations and their expected ends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from weakref import WeakKeyDictionary

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from db.attempts.liveness import last_heartbeat
from db.engine import Store
from db.health.hardware_tests import under_test
from db.health.incidents import in_quarantine
from db.lookups import devices_of_others, has_devices, is_ours
from db.models import Attempt, Node, Run, Task
from db.people.visibility import public_name
from domain.health.quarantine import NODE
from domain.liveness import LOST_AFTER_S, SILENT_AFTER_S, contact_state, is_silent
from domain.protocol import FIRST
from domain.scheduling.models import Allocation, NodeState

MOST_PARSED = 16_384
"""Lists of devices that stay parsed in memory, less than 1 KB each."""


# Built once: every launch and every turn of the scheduler reads them.
_OCCUPIED = (
    select(Task.node_id, cast(Task.devices, Text), Task.fence, Attempt.run_id, public_name())
    .join(Attempt, Attempt.fence == Task.fence)
    .join(Run, Run.id == Attempt.run_id)
    .where(has_devices())
    .order_by(Task.fence, Task.node_rank)
)
_REGISTERED = select(
    Node.id, Node.name, cast(Node.devices, Text), Node.labels, Node.last_seen, Node.drain_requested_at,
    Node.foreign_devices, Node.pool, Node.protocol, Node.unknown_attempts,
).where(Node.removed_at.is_(None), is_ours())  # fmt: skip


def node_states(
    session: Session,
    now: float,
    ends: Mapping[int, float],
    silent_after_s: float = SILENT_AFTER_S,
    lost_after_s: float = LOST_AFTER_S,
) -> list[NodeState]:
    """All registered nodes; `ends`: the expected ends of attempts, by fence. Nodes of Slurm jobs only while alive."""
    allocations: dict[str, list[Allocation]] = {}
    for node_id, devices, fence, run_id, name in session.execute(_OCCUPIED):
        allocation = Allocation(run_id, _ids(devices), ends.get(fence), name)
        allocations.setdefault(node_id, []).append(allocation)
    quarantined, tested = in_quarantine(session), under_test(session, now)
    states = []
    for row in session.execute(_REGISTERED):
        node_id, name, devices, labels, last_seen, drain_requested_at, foreign, pool, protocol, unknown = row
        silent_s = now - last_heartbeat(session, node_id, last_seen)
        if pool.startswith("slurm:") and is_silent(silent_s, silent_after_s):
            continue
        node_allocations = tuple(allocations.get(node_id, ()))
        used = {device for allocation in node_allocations for device in allocation.devices}
        others = devices_of_others(foreign, unknown) - used
        untrusted = quarantined.get(node_id, {}).keys() | tested.get(node_id, set())
        kinds = _kinds(devices)
        ids = [device for device in kinds if device not in used]
        states.append(
            NodeState(
                node_id=node_id,
                name=name,
                free=tuple(device for device in ids if device not in others and device not in untrusted),
                allocations=node_allocations,
                foreign=sum(device in others for device in ids),
                quarantined=sum(device in untrusted and device not in others for device in ids),
                in_quarantine=NODE in untrusted,
                kind="cuda" if "cuda" in kinds.values() else "cpu",
                labels=labels,
                contact=contact_state(silent_s, lost_after_s, silent_after_s),
                draining=drain_requested_at is not None,
                pool=pool,
                protocol=protocol or FIRST,
            )
        )
    return states


# A thousand nodes and their tasks are read in every turn, and their devices seldom change: each text is parsed once.
@lru_cache(maxsize=MOST_PARSED)
def _ids(devices: str) -> tuple[str, ...]:
    return tuple(json.loads(devices))


@lru_cache(maxsize=MOST_PARSED)
def _kinds(devices: str) -> Mapping[str, str]:
    """The kinds of a node's devices by id, in their order."""
    return {device["id"]: device["kind"] for device in json.loads(devices)}


READ_FOR_S = 1.0
_LATELY = WeakKeyDictionary[Store, tuple[float, list[NodeState]]]()


def registered_lately(store: Store, now: float) -> list[NodeState]:
    """Return `registered_nodes` as of the last second: many launches of one moment read it once."""
    read_at, nodes = _LATELY.get(store, (-math.inf, []))
    if not 0 <= now - read_at < READ_FOR_S:
        with store.read() as session:
            nodes = registered_nodes(session, now)
        _LATELY[store] = now, nodes
    return nodes


def registered_nodes(session: Session, now: float) -> list[NodeState]:
    """All nodes and their allocations, without expected ends."""
    return node_states(session, now, {}, lost_after_s=math.inf)
