"""What people want of a node's quarantine: that it ends, and to see why it began."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import WrongState
from db.health.incidents import SLURM, machine_of, remember
from db.lookups import node_named
from db.models import IncidentRow, Node, QuarantineRow
from db.people import audit
from db.people.visibility import visible_among
from domain.health.quarantine import NODE, Incident, IncidentKind
from domain.health.views import IncidentView
from domain.people.audit import AuditAction
from domain.requests.errors import InvalidRequest


def release(store: Store, name_or_id: str, device: str | None, now: float) -> str:
    """End the quarantine of a node and all its devices, or of one device by id or position; return the node's id.

    Raises NoSuchNode, InvalidRequest, WrongState."""
    with store.write() as session:
        node = _node_of_slurm(session, name_or_id) or node_named(session, name_or_id)
        device_id = NODE if device is None else _device_id(node, device)
        machine = machine_of(node)
        rows = set(session.scalars(select(QuarantineRow.device).where(QuarantineRow.machine == machine)))
        if not rows or device_id not in {NODE, *rows}:
            subject = f"{device} of node {node.name}" if device else f"Node {node.name}"
            raise WrongState(f"{subject} is not in quarantine.")
        incident = Incident(IncidentKind.RELEASED, now, "A person ended the quarantine.", device_id)
        remember(session, node, incident, f"released/{device_id}/{now!r}", now)
        audit.record(session, AuditAction.NODE_RELEASED, f"node {node.name}", more={"device": device or "all"})
        return node.id


def incidents(store: Store, name_or_id: str) -> list[IncidentView]:
    """Return the memory of a node, newest first. Raises NoSuchNode."""
    with store.read() as session:
        node = node_named(session, name_or_id)
        query = select(IncidentRow).where(IncidentRow.machine == machine_of(node)).order_by(IncidentRow.id.desc())
        rows = session.scalars(query).all()
        visible = visible_among(session, [row.run_id for row in rows])
        return [_view(row, is_hidden=row.run_id is not None and row.run_id not in visible) for row in rows]


def _view(row: IncidentRow, *, is_hidden: bool) -> IncidentView:
    if is_hidden:
        return IncidentView(row.at, row.kind, row.device or None, "a private run was here", row.is_strike, None, None)
    return IncidentView(row.at, row.kind, row.device or None, row.text, row.is_strike, row.run_id, row.attempt)


def _node_of_slurm(session: Session, name: str) -> Node | None:
    """The latest registration of a node of Slurm's that is in quarantine; None where there is none of this name."""
    if session.scalar(select(QuarantineRow.machine).where(QuarantineRow.machine == SLURM + name)) is None:
        return None
    of_jobs = select(Node).where(Node.name == name, Node.pool.startswith("slurm:"))
    return session.scalars(of_jobs.order_by(Node.last_seen.desc())).first()


def _device_id(node: Node, device: str) -> str:
    """The id of a device by its id, or by its position. Raises InvalidRequest."""
    ids = [str(one["id"]) for one in node.devices]
    if device in ids:
        return device
    if device.isdecimal() and int(device) < len(ids):
        return ids[int(device)]
    raise InvalidRequest("device", f"device: node {node.name} has no device {device!r}; it has {', '.join(ids)}.")
