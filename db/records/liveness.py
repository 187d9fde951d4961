"""The nodes of live attempts as they can be heard: who is silent, and whom an end waits for, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Node, Task
from domain.liveness import SILENT_AFTER_S
from domain.messages import TERMINAL_STATES
from domain.preflight.version_match import names


class Awaited(NamedTuple):
    """A node whose part of an attempt has not ended."""

    node: str
    silent_s: float


def awaited(session: Session, fences: Sequence[int], now: float) -> dict[int, list[Awaited]]:
    """By attempt, in the order of their ranks."""
    query = (
        select(Task.fence, Node.id, Node.name, Node.last_seen)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence.in_(fences), Task.state.not_in(TERMINAL_STATES))
        .order_by(Task.fence, Task.node_rank)
    )
    found: dict[int, list[Awaited]] = {}
    for fence, node_id, name, written in session.execute(query):
        silent_s = now - last_heard(session, node_id, written)
        found.setdefault(fence, []).append(Awaited(name, max(0.0, silent_s)))
    return found


def last_heard(session: Session, node_id: str, written: float) -> float:
    """When a node spoke last: as `written` down, or later, where the store takes nothing now."""
    heard_of: Callable[[str], float] | None = session.info.get("heard_of")
    return max(written, heard_of(node_id)) if heard_of else written


def who_is_silent(store: Store, fence: int, now: float) -> str:
    """The names of an attempt's nodes without a word."""
    with store.read() as session:
        return names([each.node for each in silent_nodes(awaited(session, [fence], now).get(fence, []))])


def silent_nodes(nodes: Sequence[Awaited]) -> list[Awaited]:
    """Those without a word for longer than is usual."""
    return [node for node in nodes if node.silent_s > SILENT_AFTER_S]


def end_waits_for(nodes: Sequence[Awaited]) -> str | None:
    """waits for gpu-1, and for gpu-2, which has not been heard of for 14 s"""
    silent = silent_nodes(nodes)
    heard = [node.node for node in nodes if node not in silent]
    words = [f"for {names(heard)}"] if heard else []
    if silent:
        verb, silent_s = "has" if len(silent) == 1 else "have", max(node.silent_s for node in silent)
        who = names([node.node for node in silent])
        words.append(f"for {who}, which {verb} not been heard of for {silent_s:.0f} s")
    return f"waits {', and '.join(words)}" if words else None
