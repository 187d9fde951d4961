"""Pin checkpoints, delete them and bring them back; erase those whose days are over."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from db import acting
from db.checkpoints.checkpoint_reports import discard
from db.checkpoints.needed import in_use
from db.engine import Store
from db.exceptions import WrongState
from db.lookups import add_history
from db.models import Attempt, Checkpoint, Run
from db.people import audit
from db.people.ownership import ObjectKind
from db.people.permission import no_such, permit
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.text.formats import size

AT_ONCE = 100
"""Checkpoints that one step erases."""


def pin(store: Store, checkpoint_id: int, now: float, *, is_pinned: bool = True) -> str:
    """Pin a checkpoint, so that no rule deletes it, or unpin it; return its run's id.

    Raises NoSuchCheckpoint, Denied; WrongState where it was deleted."""
    with store.write() as session:
        checkpoint, run = _permitted(session, checkpoint_id)
        if checkpoint.deleted_at is not None:
            raise WrongState(f"Checkpoint {checkpoint.path} was deleted: restore it first.")
        if is_pinned != (checkpoint.pinned_at is not None):
            checkpoint.pinned_at, checkpoint.pinned_by = (now, acting.rights().by) if is_pinned else (None, None)
            action = AuditAction.CHECKPOINT_PINNED if is_pinned else AuditAction.CHECKPOINT_UNPINNED
            _write_down(session, run, checkpoint, action, "pinned" if is_pinned else "unpinned", now)
        return run.id


def delete(store: Store, checkpoint_id: int, now: float) -> str:
    """Delete a complete checkpoint, which can be undone for some days; return its run's id.

    Raises NoSuchCheckpoint, Denied; WrongState for one that is incomplete, pinned, or in use."""
    with store.write() as session:
        checkpoint, run = _permitted(session, checkpoint_id)
        if checkpoint.deleted_at is not None:
            return run.id
        if not checkpoint.complete:
            raise WrongState(f"Checkpoint {checkpoint.path} is not complete yet: only complete ones can be deleted.")
        if checkpoint.pinned_at is not None:
            raise WrongState(f"Checkpoint {checkpoint.path} is pinned: unpin it first.")
        if why := in_use(session, run.id).get(checkpoint_id):
            raise WrongState(f"Checkpoint {checkpoint.path} is in use ({why}): delete it when that has ended.")
        mark_deleted(checkpoint, now, acting.rights().by, None)
        _write_down(session, run, checkpoint, AuditAction.CHECKPOINT_DELETED, "deleted", now)
        return run.id


def restore(store: Store, checkpoint_id: int, now: float) -> str:
    """Bring a deleted checkpoint back; return its run's id.

    Raises NoSuchCheckpoint, Denied; WrongState where its bytes are gone."""
    with store.write() as session:
        checkpoint, run = _permitted(session, checkpoint_id)
        if checkpoint.deleted_at is None:
            return run.id
        if not checkpoint.complete:
            raise WrongState(f"Checkpoint {checkpoint.path} is gone for good: its days in the bin were over.")
        checkpoint.deleted_at = checkpoint.deleted_by = checkpoint.deleted_why = None
        checkpoint.pinned_at, checkpoint.pinned_by = now, acting.rights().by  # else its rule deletes it again
        _write_down(session, run, checkpoint, AuditAction.CHECKPOINT_RESTORED, "restored and pinned", now)
        return run.id


def mark_deleted(checkpoint: Checkpoint, now: float, by: str | None, why: str | None) -> None:
    """Put a checkpoint into the bin, as part of the caller's transaction."""
    checkpoint.deleted_at, checkpoint.deleted_by, checkpoint.deleted_why = now, by, why


def _permitted(session: Session, checkpoint_id: int) -> tuple[Checkpoint, Run]:
    permit(session, Action.ACT, ObjectKind.CHECKPOINT, str(checkpoint_id))
    checkpoint = session.get(Checkpoint, checkpoint_id)
    if checkpoint is None:
        raise no_such(ObjectKind.CHECKPOINT, str(checkpoint_id))
    return checkpoint, session.get_one(Run, session.get_one(Attempt, checkpoint.fence).run_id)


def _write_down(
    session: Session, run: Run, checkpoint: Checkpoint, action: AuditAction, words: str, now: float
) -> None:
    add_history(session, run.id, None, now, f"checkpoint {checkpoint.path} {words}")
    more = {"checkpoint": checkpoint.path, "size": size(checkpoint.size_bytes)}
    audit.record_of_run(session, action, run, more)


# For good: the row stays, so that no node sends the same file again, and its id never names another one.


class Erasable(NamedTuple):
    """Deleted checkpoints whose bytes are to be removed, and then reported as removed."""

    ids: list[int]
    freed_bytes: int


def erase_due(store: Store, deleted_before: float, now: float) -> Erasable:
    """Erase what was deleted before this time, some at once; the caller removes the files, then calls `removed`."""
    with store.read() as session:
        if session.scalars(_due(deleted_before)).first() is None:
            return Erasable([], 0)
    with store.write() as session:  # somebody may have restored one meanwhile
        return _erase(session, session.scalars(_due(deleted_before)).all(), now)


def empty_bin(store: Store, now: float) -> Erasable:
    """Erase deleted checkpoints of the projects whose admin the actor is, before their time, some at once."""
    rights = acting.rights()
    with store.write() as session:
        projects = session.scalars(select(Run.project).distinct())
        own = Run.project.in_([project for project in projects if rights.may(Action.ERASE, project)])
        query = _due(now).join(Attempt, Attempt.fence == Checkpoint.fence).join(Run, Run.id == Attempt.run_id)
        erasable = _erase(session, session.scalars(query.where(own)).all(), now)
        if erasable.ids:
            more = {"checkpoints": len(erasable.ids), "size": size(erasable.freed_bytes)}
            audit.record(session, AuditAction.BIN_EMPTIED, "deleted checkpoints", None, more)
        return erasable


def removed(store: Store, ids: Collection[int]) -> None:
    """Note that the bytes of erased checkpoints are gone."""
    with store.write() as session:
        for checkpoint in session.scalars(select(Checkpoint).where(Checkpoint.id.in_(ids))):
            checkpoint.received_bytes = 0


def size_of_bin(store: Store) -> int:
    """The bytes of all deleted checkpoints whose files are on this disk."""
    in_bin = select(func.sum(Checkpoint.size_bytes)).where(
        Checkpoint.deleted_at.is_not(None), Checkpoint.complete, Checkpoint.location.is_(None)
    )
    with store.read() as session:
        return int(session.scalar(in_bin) or 0)


def _due(deleted_before: float) -> Select[Checkpoint]:
    """Select checkpoints that were deleted by then and have bytes, also after an interrupted removal of the file."""
    due = select(Checkpoint).where(Checkpoint.deleted_at <= deleted_before)
    due = due.where(or_(Checkpoint.complete, Checkpoint.received_bytes > 0))
    return due.order_by(Checkpoint.deleted_at, Checkpoint.id).limit(AT_ONCE)


def _erase(session: Session, rows: Collection[Checkpoint], now: float) -> Erasable:
    discard(session, list(rows), now)
    freed_bytes = sum(row.size_bytes for row in rows if row.complete)
    for row in rows:
        row.complete = False
    return Erasable([row.id for row in rows], freed_bytes)
