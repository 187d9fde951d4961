"""What people want of nodes: that they drain, or take new runs again."""

from __future__ import annotations

from db import acting
from db.engine import Store
from db.lookups import node_named
from db.people import audit
from domain.people.audit import AuditAction


def drain(store: Store, node: str, now: float) -> str:
    """Drain a node (name or id): nothing new starts there, its runs continue. Returns its id. Raises NoSuchNode."""
    return _set_drain(store, node, now)


def undrain(store: Store, node: str) -> str:
    """Let a node get new runs again. Returns its id. Raises NoSuchNode."""
    return _set_drain(store, node, None)


def _set_drain(store: Store, node: str, at: float | None) -> str:
    with store.write() as session:
        row = node_named(session, node)
        if (at is None) != (row.drain_requested_at is None):
            row.drain_requested_at, row.drain_requested_by = at, acting.rights().by
            audit.record(session, AuditAction.DRAINED if at else AuditAction.UNDRAINED, f"node {row.name}")
        return row.id
