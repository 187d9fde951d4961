"""What people want of nodes: that they drain, or take new runs again."""

from __future__ import annotations

from db.engine import Store
from db.lookups import node_named


def drain(store: Store, node: str, now: float) -> str:
    """Drain a node (name or id): nothing new starts there, its runs continue. Returns its id. Raises NoSuchNode."""
    return _set_drain(store, node, now)


def undrain(store: Store, node: str) -> str:
    """Let a node get new runs again. Returns its id. Raises NoSuchNode."""
    return _set_drain(store, node, None)


def _set_drain(store: Store, node: str, at: float | None) -> str:
    with store.write() as session:
        row = node_named(session, node)
        if at is None or row.drain_requested_at is None:
            row.drain_requested_at = at
        return row.id
