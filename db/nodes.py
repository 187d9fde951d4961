"""Facts about nodes: who they are, when they were last heard of, what load they carry."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Node
from db.states import NodeFacts, NodeLoad

NAME_HELD_S = 10.0
"""For so long after its last word a node's name belongs to it alone."""


class NameTaken(Exception):
    """Another worker that is alive has this name or this identity."""


class Heard(NamedTuple):
    """When a node spoke, and the load it told then or before."""

    at: float
    load: NodeLoad | None = None


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
    nodes_seen(store, {node_id: Heard(now, load)})


def nodes_seen(store: Store, heard: Mapping[str, Heard]) -> None:
    """What nodes said last, by their ids, all in one transaction."""
    spoke = [{"node": node, "at": said.at} for node, said in heard.items() if said.load is None]
    told = [
        {"node": node, "at": said.at, "sample": dict(said.load), "others": _foreign(said.load)}
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


def hash_token(token: str) -> str:
    """What the store keeps of a token: a stolen copy of the store opens no door."""
    return hashlib.sha256(token.encode()).hexdigest()


_NODES = cast(Table, Node.__table__)
_SPOKE = update(_NODES).where(_NODES.c.id == bindparam("node")).values(last_seen=bindparam("at"))
_TOLD = _SPOKE.values(load=bindparam("sample"), foreign_devices=bindparam("others"))


def _foreign(load: NodeLoad) -> list[str] | None:
    return [gpu["id"] for gpu in load.gpus if gpu.get("foreign") and "id" in gpu] or None


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
