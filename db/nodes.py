"""Facts about nodes: who they are, when they were last heard of, what load they carry."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Node
from db.states import NodeFacts, NodeLoad

NAME_HELD_S = 10.0
"""For so long after its last word a node's name belongs to it alone."""


class NameTaken(Exception):
    """Another worker that is alive has this name or this identity."""


@dataclass(frozen=True)
class Registration:
    """A node's identity: what it must show from now on."""

    node_id: str
    token: str


def register_node(store: Store, facts: NodeFacts, node_id: str | None, now: float) -> Registration:
    """Take a worker in, or take it back; the token of an earlier registration ends. Raises NameTaken."""
    token = secrets.token_urlsafe(32)
    with store.write() as session:
        node = _known_node(session, facts, node_id, now)
        if node is None:
            node = Node(id=secrets.token_hex(5), first_seen=now)
            session.add(node)
        node.name, node.instance_id, node.hostname = facts.name, facts.instance_id, facts.hostname
        node.address, node.labels = facts.address, facts.labels
        node.devices = [device.model_dump() for device in facts.devices]
        node.info = {**facts.info, "started_at": facts.started_at}
        node.token_hash, node.last_seen = hash_token(token), now
        session.flush()
        return Registration(node.id, token)


def node_of_token(store: Store, token: str) -> str | None:
    """The node a token belongs to."""
    with store.read() as session:
        return session.scalar(select(Node.id).where(Node.token_hash == hash_token(token)))


def node_seen(store: Store, node_id: str, now: float, load: NodeLoad | None = None) -> None:
    """The node spoke; with its load when it sent one."""
    values: dict[str, object] = {"last_seen": now}
    if load is not None:
        values["load"] = load.model_dump()
        values["foreign_devices"] = [gpu.get("id") for gpu in load.gpus if gpu.get("foreign")] or None
    with store.write() as session:
        session.execute(update(Node).where(Node.id == node_id).values(**values))


def hash_token(token: str) -> str:
    """What the store keeps of a token: a stolen copy of the store opens no door."""
    return hashlib.sha256(token.encode()).hexdigest()


def _known_node(session: Session, facts: NodeFacts, node_id: str | None, now: float) -> Node | None:
    if node_id is not None and (node := session.get(Node, node_id)) is not None:
        if node.instance_id != facts.instance_id and facts.started_at < node.info.get("started_at", 0.0):
            raise NameTaken(
                f"Another worker started later with the identity of node {node.name}; this one ends. "
                "If the data directory was copied, remove node/node.json from the copy."
            )
        return node
    same_name = session.scalars(select(Node).where(Node.name == facts.name)).first()
    if same_name is not None and now - same_name.last_seen < NAME_HELD_S:
        raise NameTaken(
            f"A node named {facts.name!r} is already at work on {same_name.hostname}. "
            "Names are unique: start this worker with --name OTHER."
        )
    return same_name
