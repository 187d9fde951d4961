"""Facts about nodes: who they are, when they were last heard of, what load they carry."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, Job, Node, Task
from db.records.exceptions import NoSuchRun, WrongState
from db.records.lookups import node_named
from db.records.node_tokens import TurnedAway, hash_token
from domain.liveness import LOST_AFTER_S
from domain.messages import LIVE_STATES, HeldAttempt, NodeFacts, NodeLoad

NAME_HELD_S = 10.0
"""For so long after its last word a node's name belongs to it alone."""


class NameTaken(Exception):
    """Another worker that is alive has this name or this identity."""


class IdentityEnded(Exception):
    """The node that this worker was is gone for good: removed, or another worker goes on as it."""

    field = "node"


@dataclass(frozen=True)
class Claim:
    """Which node a worker says it is."""

    node_id: str | None = None
    proven: bool = False
    """It has shown that node's own token."""
    again: bool = False
    """This very process was that node before."""


class Heard(NamedTuple):
    """When a node spoke, and the load it told then or before."""

    at: float
    load: NodeLoad | None = None


@dataclass(frozen=True)
class RegisteredNode:
    """A node's identity: what it must show from now on."""

    node_id: str
    token: str


def register_node(
    store: Store,
    facts: NodeFacts,
    claim: Claim | str | None,
    now: float,
    lost_after_s: float = LOST_AFTER_S,
) -> RegisteredNode:
    """Take a worker in, or take it back; the token of an earlier registration ends. Raises NameTaken, IdentityEnded.

    `facts.held`: only what the store does not know of it."""
    token = secrets.token_urlsafe(32)
    claim = claim if isinstance(claim, Claim) else Claim(claim)
    with store.write() as session:
        node = _known_node(session, facts, claim, now, lost_after_s)
        if node is None:
            node = Node(id=secrets.token_hex(5), first_seen=now)
            session.add(node)
        node.name, node.instance_id, node.hostname = facts.name, facts.instance_id, facts.hostname
        node.address, node.labels, node.pool = facts.address, facts.labels, facts.pool
        node.devices = [device.model_dump() for device in facts.devices]
        node.info, node.protocol = facts.info, facts.protocol
        node.unknown_attempts = [one.model_dump() for one in facts.held] or None
        node.token_hash, node.last_seen = hash_token(token), now
        session.flush()
        return RegisteredNode(node.id, token)


def node_of_token(store: Store, token: str) -> str | TurnedAway | None:
    """The node a token belongs to; of a node that was removed, what became of it."""
    named = select(Node.id, Node.name, Node.removed_at).where(Node.token_hash == hash_token(token))
    with store.read() as session:
        found = session.execute(named).first()
    if found is None:
        return None
    return TurnedAway(_was_removed(found.name, found.removed_at)) if found.removed_at else str(found.id)


def remove_node(store: Store, node: str, now: float) -> tuple[str, str]:
    """Wish that a node (its name or id) is no part of the cluster any more; returns its id and name.

    What ran there stays in the history; its worker's token ends. Raises NoSuchNode, WrongState."""
    with store.write() as session:
        found = node_named(session, node)
        live = select(Attempt.run_id).join(Task, Task.fence == Attempt.fence)
        live = live.where(Task.node_id == found.id, Task.state.in_(LIVE_STATES)).order_by(Task.fence)
        if runs := list(dict.fromkeys(session.scalars(live))):
            raise WrongState(
                f"Node {found.name} still has {' '.join(runs)}; stop {'it' if len(runs) == 1 else 'them'} first, "
                "or drain the node and wait for the end."
            )
        found.removed_at = now
        return found.id, found.name


def end_unknown(session: Session, node: str, run_id: str) -> tuple[str, str]:
    """Wish that what a node trains of a run that this store does not know ends; returns the node's id and name.

    Raises NoSuchNode, NoSuchRun."""
    found = node_named(session, node)
    held = [HeldAttempt.model_validate(one) for one in found.unknown_attempts or ()]
    wanted = [one.label for one in held if one.run_id == run_id]
    if not wanted:
        raise NoSuchRun(
            f"Node {found.name} has nothing of a run {run_id!r} that this dashboard does not know."
        )
    still = [one.label for one in held if one.label in (found.unknown_ends or ())]
    found.unknown_ends = sorted({*still, *wanted})
    return found.id, found.name


def ends_wished(session: Session, node_id: str) -> list[str]:
    """Labels of the unknown attempts that the node is to end."""
    wished = session.scalar(select(Node.unknown_ends).where(Node.id == node_id))
    return list(wished or ())


def nodes_of_runs(store: Store, run_ids: Iterable[str]) -> set[str]:
    """Every node that had a part of one of these runs, and gateways that submitted a job for one."""
    wanted = list(run_ids)
    parts = select(Task.node_id).join(Attempt, Attempt.fence == Task.fence)
    gateways = select(Job.gateway_id).join(Attempt, Attempt.fence == Job.fence)
    with store.read() as session:
        return {
            node_id
            for query in (parts, gateways)
            for node_id in session.scalars(query.where(Attempt.run_id.in_(wanted)).distinct())
        }


def node_seen(store: Store, node_id: str, now: float, load: NodeLoad | None = None) -> None:
    """The node spoke; with its load when it sent one."""
    nodes_seen(store, {node_id: Heard(now, load)})


def nodes_seen(store: Store, heard: Mapping[str, Heard]) -> None:
    """What nodes said last, by their ids, all in one transaction."""
    spoke = [{"node": node, "at": said.at} for node, said in heard.items() if said.load is None]
    told = [
        {
            "node": node,
            "at": said.at,
            "sample": {name: value for name, value in said.load if name != "held"},
            "others": _foreign(said.load),
            "unknown": [one.model_dump() for one in said.load.held] or None,
        }
        for node, said in heard.items()
        if said.load is not None
    ]
    if not spoke and not told:
        return
    with store.write("nodes that spoke") as session:
        connection = session.connection()
        if spoke:
            connection.execute(_SPOKE, spoke)
        if told:
            connection.execute(_TOLD, told)


_NODES = cast(Table, Node.__table__)
_SPOKE = update(_NODES).where(_NODES.c.id == bindparam("node")).values(last_seen=bindparam("at"))
_TOLD = _SPOKE.values(
    load=bindparam("sample"), foreign_devices=bindparam("others"), unknown_attempts=bindparam("unknown")
)


def _foreign(load: NodeLoad) -> list[str] | None:
    return [gpu["id"] for gpu in load.gpus if gpu.get("foreign") and "id" in gpu] or None


def _known_node(
    session: Session, facts: NodeFacts, claim: Claim, now: float, lost_after_s: float
) -> Node | None:
    node = session.get(Node, claim.node_id) if claim.node_id is not None else None
    if node is not None and node.pool != facts.pool:
        node = None  # the secret of a job is good for nodes of that job alone
    if node is not None and node.removed_at is not None:
        raise IdentityEnded(_was_removed(node.name, node.removed_at))
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
    """Somebody new says to be this node: its own worker started again, or one with a copy of its identity.

    A copy made before the node last registered has a token that ended; a later one is in another place: on another
    machine, or in another directory."""
    if now - node.last_seen >= NAME_HELD_S:
        return
    before, here = node.info.get("place"), facts.info.get("place")
    if claim.proven and (before is None or before == here):
        return
    text = f"Node {node.name} is at work on {node.hostname} with this identity"
    if claim.again:
        raise IdentityEnded(f"{text}: a copy of this worker's data directory was started after it.")
    raise NameTaken(
        f"{text}. If the data directory was copied, remove node/node.json from the copy; it then joins as a node "
        "of its own. If the worker only moved or restarted, it is let in a few seconds after the other is gone."
    )


def _may_replace(session: Session, node: Node, now: float, lost_after_s: float) -> Node:
    """A worker without an identity takes over a name that nobody uses any more."""
    silent_s = now - node.last_seen
    if silent_s < NAME_HELD_S:
        raise NameTaken(_name_taken(node))
    live = session.scalars(select(Task.fence).where(Task.node_id == node.id, Task.state.in_(LIVE_STATES)))
    if silent_s < lost_after_s and live.first() is not None:
        raise NameTaken(
            f"A node named {node.name!r}, not heard of for {silent_s:.0f} s, has a run. If this worker replaces it, "
            f"it is let in when that one counts as lost; otherwise start it with --name OTHER."
        )
    return node


def _name_taken(node: Node) -> str:
    return (
        f"A node named {node.name!r} is already at work on {node.hostname}. "
        f"Names are unique: start this worker with --name OTHER, or remove that node "
        f"(`rankzero nodes remove {node.name}`)."
    )


def _was_removed(name: str, at: float) -> str:
    when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"Node {name} was removed at {when}. To let this machine join again, delete node/node.json in the "
        "worker's data directory and start it with a join token."
    )
