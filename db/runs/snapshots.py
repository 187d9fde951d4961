"""The stored snapshots of code, and what the newest runs train."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import Run, Snapshot, SnapshotSender, Study
from db.people import audit
from db.people.ownership import project_column
from db.people.visibility import is_visible, sees_everything, visible_runs
from domain.people.audit import AuditAction


@dataclass(frozen=True)
class SnapshotView:
    """A snapshot of code, without its bytes."""

    sha256: str
    size_bytes: int
    files: int
    origin: dict[str, Any]
    created_at: float


def keep(
    store: Store,
    sha256: str,
    size_bytes: int,
    files: int,
    origin: dict[str, Any] | None,
    now: float,
    *,
    is_upload: bool = False,
) -> None:
    """Register a snapshot whose bytes the actor has sent; for known content only the origin is updated.

    What somebody uploaded is in the audit log by this, what a launch packs by the launch.

    A known origin stays once another person's run uses the snapshot: only its launcher may rewrite the record."""
    with store.write() as session:
        row = session.get(Snapshot, sha256)
        if row is None:
            row = Snapshot(sha256=sha256, size_bytes=size_bytes, files=files, origin={}, created_at=now)
            session.add(row)
            session.flush()
        if (by := acting.rights().by) is not None and session.get(SnapshotSender, (sha256, by)) is None:
            session.add(SnapshotSender(sha256=sha256, by=by))
        if origin is not None and not (row.origin and _is_used_by_others(session, sha256)):
            if row.origin and row.origin != origin:
                audit.record(session, AuditAction.EDITED, f"code {sha256[:12]}", more={"changed": "origin"})
            row.origin = origin
        if is_upload:
            audit.record(
                session, AuditAction.UPLOADED, f"code {sha256[:12]}", more={"files": files, "bytes": size_bytes}
            )


def _is_used_by_others(session: Session, sha256: str) -> bool:
    by, same = acting.rights().by, Run.spec["snapshot"].as_string() == sha256
    if by is None:
        return False
    return session.scalar(select(Run.id).where(same, Run.by.is_distinct_from(by)).limit(1)) is not None


def find(store: Store, sha256: str) -> SnapshotView | None:
    """The snapshot with this digest; None when it is not stored, or not for the actor to use."""
    with store.read() as session:
        row = session.get(Snapshot, sha256)
        if row is None or not _is_for_actor(session, sha256):
            return None
        return SnapshotView(row.sha256, row.size_bytes, row.files, dict(row.origin), row.created_at)


def _is_for_actor(session: Session, sha256: str) -> bool:
    """Whether the actor sees something that uses a snapshot, or has sent it; the digest alone opens nothing."""
    if sees_everything() or session.get(SnapshotSender, (sha256, acting.rights().by)) is not None:
        return True
    of_runs = select(Run.id).where(Run.spec["snapshot"].as_string() == sha256, visible_runs())
    of_studies = select(Study.id).where(Study.spec["snapshot"].as_string() == sha256)
    of_studies = of_studies.where(is_visible(project_column(Study.spec), Study.by))
    return any(session.scalar(query.limit(1)) is not None for query in (of_runs, of_studies))


def forget_unused(store: Store, besides: Collection[str], made_before: float = math.inf) -> list[str]:
    """Delete snapshots that no run and no study in progress uses, except `besides` and younger ones; return their
    digests."""
    with store.write() as session:
        named = Run.spec["snapshot"].as_string()
        used = set(session.scalars(select(named).where(named.is_not(None)).distinct()))
        in_progress = select(Study.spec["snapshot"].as_string()).where(Study.ended_at.is_(None))
        used |= set(session.scalars(in_progress))
        old = select(Snapshot.sha256).where(Snapshot.created_at < made_before)
        unused = set(session.scalars(old)) - used - set(besides)
        session.execute(delete(Snapshot).where(Snapshot.sha256.in_(unused)))
        return sorted(unused)


# What the newest runs train, for the launch form.

LOOKED_AT = 200
"""Newest runs that are looked at, so that a large store costs no more than a small one."""


class Code(NamedTuple):
    """A run's target, and what starts in it."""

    target: str
    entry: str | None
    module: str | None


def recent_code(store: Store) -> list[Code]:
    """Return what the newest runs train, each once, the newest first."""
    parts = [Run.spec[name].as_string() for name in Code._fields]
    query = select(*parts).where(visible_runs()).order_by(Run.created_at.desc(), Run.id).limit(LOOKED_AT)
    with store.read() as session:
        return list(dict.fromkeys(Code(*row) for row in session.execute(query)))
