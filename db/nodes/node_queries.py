"""Nodes as people see them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from sqlalchemy import func, select

from db.attempts.liveness import last_heartbeat
from db.engine import Store
from db.health.incidents import in_quarantine, machine_of, slurm_nodes_left_out
from db.lookups import devices_of_others, has_devices, is_ours
from db.models import Attempt, Node, Run, Task
from db.people.visibility import sees_everything, visible_among, visible_runs
from domain import protocol
from domain.health.quarantine import NODE
from domain.liveness import contact_state
from domain.messages import HeldAttempt
from domain.spec import rank_at
from domain.views import DeviceView, NodeView, Quarantine

OWN_VERSION = version("rankzero")
SLOW_FACTS = ("interface", "clock_offset_s", "clock_error_s")
"""Facts that are sent with the load, because they may change while a worker runs."""


def nodes(store: Store, now: float, lost_after_s: float = 30.0, also: str = "") -> list[NodeView]:
    """All registered nodes by name, with the run on each device; guests are shown apart (`db.watched.guests`).

    `also`: the id of one whose Slurm job may be over."""
    occupied = (
        select(Task, Attempt.run_id, Attempt.number, Run.spec["strategy"].as_string())
        .join(Attempt, Attempt.fence == Task.fence)
        .join(Run, Run.id == Attempt.run_id)
        .where(has_devices())
    )
    with store.read() as session:
        users = {
            (task.node_id, device): (run_id, number, rank_at(task.node_rank, len(task.devices), at, strategy))
            for task, run_id, number, strategy in session.execute(occupied)
            for at, device in enumerate(task.devices)
        }
        visible = visible_among(session, {run_id for run_id, _, _ in users.values()})
        of_a_job = Node.pool.startswith("slurm:")  # shown until it is lost; its tasks keep its name
        shown = Node.removed_at.is_(None) & (~of_a_job | (Node.last_seen > now - lost_after_s)) | (Node.id == also)
        registered = session.scalars(select(Node).where(is_ours(), shown).order_by(Node.name))
        quarantined = {
            machine: {device: Quarantine(row.since, row.why) for device, row in rows.items()}
            for machine, rows in in_quarantine(session).items()
        }
        of_slurm = slurm_nodes_left_out(session)
        return [
            _node_view(
                node,
                users,
                visible,
                quarantined.get(machine_of(node), {}),
                of_slurm,
                last_heartbeat(session, node.id, node.last_seen),
                now,
                lost_after_s,
            )
            for node in registered
        ]


def last_word(store: Store) -> float | None:
    """The time of the latest heartbeat of any node; None when there was none."""
    with store.read() as session:
        return session.scalar(select(func.max(Node.last_seen)))


def _node_view(
    node: Node,
    users: dict[tuple[str, str], tuple[str, int, int]],
    visible: Collection[str],
    quarantined: dict[str, Quarantine],
    of_slurm: dict[str, str],
    last_seen: float,
    now: float,
    lost_after_s: float,
) -> NodeView:
    silent_s, load = max(0.0, now - last_seen), node.load or {}
    devices, others = [], devices_of_others(node.foreign_devices, node.unknown_attempts)
    for device in node.devices:
        run_id, attempt, rank = users.get((node.id, device["id"]), (None, None, None))
        foreign = run_id is None and device["id"] in others
        quarantine = quarantined.get(device["id"], quarantined.get(NODE))
        view = DeviceView(**device, run_id=run_id, attempt=attempt, foreign=foreign, rank=rank, quarantine=quarantine)
        is_hidden = run_id is not None and run_id not in visible
        devices.append(replace(view, run_id=None, attempt=None, rank=None, private=True) if is_hidden else view)
    draining = node.drain_requested_at is not None
    upgrade = protocol.advice(node.protocol, node.info.get("rankzero_version"), OWN_VERSION)

    return NodeView(
        id=node.id,
        name=node.name,
        state=contact_state(silent_s, lost_after_s),
        draining=draining,
        hostname=node.hostname,
        address=load.get("address") or node.address,
        slots=len(devices),
        free=0 if draining or upgrade else sum(_is_free(device) for device in devices),
        devices=devices,
        labels=dict(node.labels),
        info=node.info | {name: load[name] for name in SLOW_FACTS if name in load},
        load=node.load,
        last_seen=last_seen,
        silent_s=silent_s,
        protocol=node.protocol or protocol.FIRST,
        upgrade=upgrade,
        unknown=[_unknown_attempt(node, held) for held in node.unknown_attempts or () if sees_everything()],
        pool=node.pool,
        quarantine=quarantined.get(NODE),
        left_out=[_left_out(name, why) for name, why in of_slurm.items()] if node.pool == "slurm" else [],
        drained_by=node.drain_requested_by if draining else None,
    )


def _left_out(name: str, why: str) -> str:
    """A sentence about a node of Slurm's for its gateway."""
    because = why.rstrip(".")
    return f"New jobs leave out {name}, which is in quarantine: {because}. `rankzero nodes release {name}` ends it."


def _is_free(device: DeviceView) -> bool:
    return not device.has_run and not device.foreign and device.quarantine is None


def _unknown_attempt(node: Node, held: dict[str, Any]) -> dict[str, Any]:
    """An unknown attempt with a sentence about it, and whether somebody asked for its end."""
    is_ending = HeldAttempt.model_validate(held).label in (node.unknown_ends or ())
    return held | {"message": _unknown_words(node.name, held), "ending": is_ending}


def _unknown_words(node: str, attempt: dict[str, Any]) -> str:
    """A sentence about an attempt on a node that this store does not know, and the ways to deal with it."""
    devices = ", ".join(attempt.get("devices") or [])
    does = f"trains here on {devices}" if devices else "has ended here and has not been reported"
    by = f"store {attempt['store']}" if attempt.get("store") else "an earlier store"
    return (
        f"Run {attempt['run_id']}, attempt {attempt['attempt']}, {does}. It was started by {by}; this "
        "dashboard's store "
        "does not know it: an older copy was restored. It is not touched, and its data stays in "
        f"{attempt['folder']}. Restore a newer copy to get it back, or end it: "
        f"rankzero nodes end-unknown {node} {attempt['run_id']}"
    )


# The runs that have devices now, for the picture of the cluster.


@dataclass(frozen=True)
class Occupant:
    """A run that has devices allocated."""

    id: str
    name: str
    state: str
    ordinal: int
    """Its position in the order of all runs ever launched."""


def occupants(store: Store) -> list[Occupant]:
    """The runs that have devices of our nodes allocated, oldest first."""
    first = select(Attempt.run_id, func.min(Attempt.fence).label("ordinal")).group_by(Attempt.run_id).subquery()
    held = select(Task.fence).join(Node, Node.id == Task.node_id).where(has_devices(), is_ours())
    query = (
        select(Run.id, Run.name, Attempt.state, first.c.ordinal)
        .join(Attempt, Attempt.run_id == Run.id)
        .join(first, first.c.run_id == Run.id)
        .where(Attempt.fence.in_(held), visible_runs())
        .order_by(first.c.ordinal)
    )
    with store.read() as session:
        return [Occupant(*row) for row in session.execute(query)]
