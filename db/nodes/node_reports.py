"""Reports about nodes: registration, heartbeats and load."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuchRun, Superseded, WrongState
from db.health.incidents import faults_reported
from db.lookups import node_named
from db.models import Attempt, DeletedAttempt, Job, Node, Task
from db.nodes.join_tokens import TurnedAway
from db.people import audit
from db.people.visibility import visible_among
from db.token_hashes import hash_token
from domain.liveness import LOST_AFTER_S
from domain.messages import LIVE_STATES, HeldAttempt, NodeFacts, NodeLoad
from domain.people.audit import AuditAction
from domain.scheduling.fit import SOME_RUN
from domain.text.formats import agree, clock_minute
from domain.watching.guests import is_guest

NOT_STORED = ("held", "faults")
"""Fields of a load that are stored elsewhere."""
NAME_HELD_S = 10.0
"""For so long after its last heartbeat no other worker may take a node's name."""


class NameTaken(Exception):
    """Another live worker has this name or this identity."""


class IdentityEnded(Exception):
    """The worker's node identity has ended: the node was removed, or another worker continues as it."""

    field = "node"


@dataclass(frozen=True)
class Claim:
    """The node identity that a worker claims."""

    node_id: str | None = None
    proven: bool = False
    """Whether it has shown that node's own token."""
    again: bool = False
    """Whether this very process was that node before."""


class Heartbeat(NamedTuple):
    """The time of a node's last heartbeat, and its latest load report."""

    at: float
    load: NodeLoad | None = None


@dataclass(frozen=True)
class RegisteredNode:
    """A node's identity and the token it must show from now on."""

    node_id: str
    token: str


def register_node(
    store: Store,
    facts: NodeFacts,
    claim: Claim | str | None,
    now: float,
    lost_after_s: float = LOST_AFTER_S,
) -> RegisteredNode:
    """Register a worker, also again; the token of an earlier registration ends. Raises NameTaken, IdentityEnded.

    `facts.held`: only the attempts that the store does not know."""
    claim = claim if isinstance(claim, Claim) else Claim(claim)
    with store.write() as session:
        facts = _under_given_name(session, facts, claim)
        node = _known_node(session, facts, claim, now, lost_after_s)
        return describe(session, node or Node(id=secrets.token_hex(5), first_seen=now), facts, now)


def describe(session: Session, node: Node, facts: NodeFacts, now: float) -> RegisteredNode:
    """Store what a worker says of its node, which may be new, and give it another token."""
    token = secrets.token_urlsafe(32)
    node.name, node.instance_id, node.hostname = facts.name, facts.instance_id, facts.hostname
    node.address, node.labels, node.pool = facts.address, facts.labels, facts.pool
    node.devices = [device.model_dump() for device in facts.devices]
    node.info, node.protocol = facts.info, facts.protocol
    node.unknown_attempts = [attempt.model_dump() for attempt in facts.held] or None
    node.token_hash, node.last_seen = hash_token(token), now
    session.add(node)
    session.flush()
    return RegisteredNode(node.id, token)


def _under_given_name(session: Session, facts: NodeFacts, claim: Claim) -> NodeFacts:
    """The facts of a guest under the name that it was given: others of its run may be on the same host."""
    node = session.get(Node, claim.node_id) if claim.node_id is not None and is_guest(facts.pool) else None
    return facts if node is None else facts.model_copy(update={"name": node.name})


def node_of_token(store: Store, token: str) -> str | TurnedAway | None:
    """The id of the node a token belongs to, or `TurnedAway` when that node was removed; None for an unknown token."""
    named = select(Node.id, Node.name, Node.removed_at).where(Node.token_hash == hash_token(token))
    with store.read() as session:
        row = session.execute(named).first()
    if row is None:
        return None
    return TurnedAway(removal_words(row.name, row.removed_at)) if row.removed_at else str(row.id)


def task_token_refusal(store: Store, fence: int, node_id: str) -> str | None:
    """The sentence that refuses an attempt's token whose node was removed. Raises Superseded for an erased attempt.

    The store alone decides, so that a restart changes nothing. One that does not know the attempt, as an older copy
    does not, has not erased it."""
    with store.read() as session:
        if session.get(DeletedAttempt, fence) is not None:
            raise Superseded(f"Attempt {fence} no longer exists.")
        node = session.get(Node, node_id)
        return None if node is None or node.removed_at is None else removal_words(node.name, node.removed_at)


def name_of_node(store: Store, node_id: str) -> str:
    """The name of a node, or its id where there is no such node."""
    with store.read() as session:
        return session.scalar(select(Node.name).where(Node.id == node_id)) or node_id


def remove_node(store: Store, name_or_id: str, now: float) -> tuple[str, str]:
    """Remove a node from the cluster; return its id and name.

    Its runs stay in the history; its worker's token ends. Raises NoSuchNode, WrongState."""
    with store.write() as session:
        row = node_named(session, name_or_id)
        live = select(Attempt.run_id).join(Task, Task.fence == Attempt.fence)
        live = live.where(Task.node_id == row.id, Task.state.in_(LIVE_STATES)).order_by(Task.fence)
        if runs := list(dict.fromkeys(session.scalars(live))):
            visible = visible_among(session, runs)
            named = [run_id if run_id in visible else SOME_RUN for run_id in runs]
            raise WrongState(
                f"Node {row.name} still has {' '.join(named)}; stop {agree(len(runs), 'it', 'them')} "
                "first, or drain the node and wait."
            )
        row.removed_at = now
        session.execute(update(Task).where(Task.node_id == row.id).values(delivery=None))
        audit.record(session, AuditAction.NODE_REMOVED, f"node {row.name}")
        return row.id, row.name


def end_unknown(session: Session, name_or_id: str, run_id: str) -> tuple[str, str]:
    """Request the end of a node's attempts of a run that this store does not know; return the node's id and name.

    Raises NoSuchNode, NoSuchRun."""
    row = node_named(session, name_or_id)
    held = [HeldAttempt.model_validate(attempt) for attempt in row.unknown_attempts or ()]
    ending = [attempt.label for attempt in held if attempt.run_id == run_id]
    if not ending:
        raise NoSuchRun(f"Node {row.name} has no unknown run {run_id!r}.")
    still_ending = [attempt.label for attempt in held if attempt.label in (row.unknown_ends or ())]
    row.unknown_ends = sorted({*still_ending, *ending})
    audit.record(session, AuditAction.STOPPED, f"run {run_id}", more={"node": row.name})
    return row.id, row.name


def labels_to_end(session: Session, node_id: str) -> list[str]:
    """Labels of the unknown attempts that the node is to end."""
    labels = session.scalar(_UNKNOWN_ENDS, {"node": node_id})
    return list(labels or ())


def nodes_of_runs(store: Store, run_ids: Iterable[str]) -> set[str]:
    """Ids of all nodes that had a task of one of these runs, and of gateways that submitted a job for one."""
    ids = list(run_ids)
    tasks = select(Task.node_id).join(Attempt, Attempt.fence == Task.fence)
    gateways = select(Job.gateway_id).join(Attempt, Attempt.fence == Job.fence)
    with store.read() as session:
        return {
            node_id
            for query in (tasks, gateways)
            for node_id in session.scalars(query.where(Attempt.run_id.in_(ids)).distinct())
        }


def heartbeats_received(store: Store, heartbeats: Mapping[str, Heartbeat]) -> None:
    """Store the nodes' latest heartbeats, by node id, in one transaction."""
    without_load = [
        {"node": node, "at": heartbeat.at} for node, heartbeat in heartbeats.items() if heartbeat.load is None
    ]
    loads = [
        {
            "node": node,
            "at": heartbeat.at,
            "sample": {name: value for name, value in heartbeat.load if name not in NOT_STORED},
            "others": _foreign(heartbeat.load),
            "unknown": [attempt.model_dump() for attempt in heartbeat.load.held] or None,
        }
        for node, heartbeat in heartbeats.items()
        if heartbeat.load is not None
    ]
    if not without_load and not loads:
        return
    with store.write("nodes that spoke") as session:
        connection = session.connection()
        if without_load:
            connection.execute(_HEARTBEAT, without_load)
        if loads:
            connection.execute(_LOAD, loads)
        for node_id, heartbeat in heartbeats.items():
            if heartbeat.load is not None and heartbeat.load.faults:
                faults_reported(session, node_id, heartbeat.load.faults, heartbeat.at)


_NODES = cast(Table, Node.__table__)
_UNKNOWN_ENDS = select(_NODES.c.unknown_ends).where(_NODES.c.id == bindparam("node"))
_HEARTBEAT = update(_NODES).where(_NODES.c.id == bindparam("node")).values(last_seen=bindparam("at"))
_LOAD = _HEARTBEAT.values(
    load=bindparam("sample"), foreign_devices=bindparam("others"), unknown_attempts=bindparam("unknown")
)


def _foreign(load: NodeLoad) -> list[str] | None:
    return [gpu["id"] for gpu in load.gpus if gpu.get("foreign") and "id" in gpu] or None


def _known_node(session: Session, facts: NodeFacts, claim: Claim, now: float, lost_after_s: float) -> Node | None:
    node = session.get(Node, claim.node_id) if claim.node_id is not None else None
    if node is not None and node.pool != facts.pool:
        node = None  # the secret of a job is valid only for nodes of that job
    if node is not None and node.removed_at is not None:
        raise IdentityEnded(removal_words(node.name, node.removed_at))
    same_name = session.scalars(
        select(Node)
        .where(Node.name == facts.name, Node.pool == facts.pool, Node.removed_at.is_(None))
        .order_by(Node.last_seen.desc())
    ).first()
    if node is None:
        return same_name and _may_replace(session, same_name, now, lost_after_s)
    if node.instance_id != facts.instance_id:
        _check_identity(node, facts, claim, now)
    if same_name is not None and same_name is not node:
        raise NameTaken(_name_taken(same_name))
    return node


def _check_identity(node: Node, facts: NodeFacts, claim: Claim, now: float) -> None:
    """Check a new process that claims this node's identity: its restarted worker, or one with a copied identity.

    A copy made before the node last registered has an ended token; a later one is on another machine or in another
    directory. Raises IdentityEnded, NameTaken."""
    if now - node.last_seen >= NAME_HELD_S:
        return
    before, here = node.info.get("place"), facts.info.get("place")
    if claim.proven and (before is None or before == here):
        return
    text = f"Node {node.name} is connected from {node.hostname} with this identity"
    if claim.again:
        raise IdentityEnded(f"{text}: a copy of this worker's data directory was started after it.")
    raise NameTaken(
        f"{text}. If the data directory was copied, remove node/node.json from the copy; it then joins as "
        "a separate node. If the worker only moved or restarted, it is accepted a few seconds after the other is gone."
    )


def _may_replace(session: Session, node: Node, now: float, lost_after_s: float) -> Node:
    """The node that a worker without an identity replaces by name. Raises NameTaken while the node is in use."""
    silent_s = now - node.last_seen
    if silent_s < NAME_HELD_S:
        raise NameTaken(_name_taken(node))
    live = session.scalars(select(Task.fence).where(Task.node_id == node.id, Task.state.in_(LIVE_STATES)))
    if silent_s < lost_after_s and live.first() is not None:
        raise NameTaken(
            f"A node named {node.name!r}, silent for {silent_s:.0f} s, has a run. If this worker replaces it, "
            "it is accepted when that node counts as lost; otherwise start it with --name OTHER."
        )
    return node


def _name_taken(node: Node) -> str:
    return (
        f"A node named {node.name!r} is already connected from {node.hostname}. "
        f"Names are unique: start this worker with --name OTHER, or remove that node "
        f"(`rankzero nodes remove {node.name}`)."
    )


def removal_words(name: str, at: float) -> str:
    """The sentence for a removed node, with the way to join again."""
    when = clock_minute(at)
    return (
        f"Node {name} was removed at {when}. To let this machine join again, delete node/node.json in the "
        "worker's data directory and start it with a join token."
    )
