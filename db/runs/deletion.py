"""Delete runs in two steps: for everybody at once, and for good with all rows once they are due; undo the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import delete as delete_rows
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db import acting
from db.checkpoints.checkpoint_reports import discard
from db.engine import Store
from db.exceptions import NoSuchRun, WrongState
from db.lookups import add_history, latest_attempt
from db.models import Attempt, Checkpoint, DeletedAttempt, File, Run
from db.people import audit
from domain.messages import TERMINAL_STATES
from domain.people.audit import AuditAction
from domain.people.roles import Action

MOST = 1000
"""Deleted runs that are listed, the newest deletions first."""


@dataclass(frozen=True)
class DeletedRun:
    """A deleted run whose files are still here."""

    id: str
    name: str
    project: str
    by: str | None
    """Who launched it."""
    deleted_at: float
    deleted_by: str | None
    size_bytes: int
    """The bytes of its files and checkpoints, those in a bucket too: free once it is erased."""


class Erased(NamedTuple):
    """What an erased run leaves on the disk until it is removed there."""

    file_ids: list[int]
    checkpoint_ids: list[int]
    freed_bytes: int


def delete(store: Store, run_id: str, now: float) -> int:
    """Let an ended run exist for nobody; returns the bytes that are free once it is erased.

    Raises NoSuchRun, WrongState."""
    with store.write() as session:
        run, last = _run(session, run_id, is_deleted=False), _ended(session, run_id)
        run.deleted_at, run.deleted_by = now, acting.rights().by
        add_history(session, run_id, last.number, now, "deleted")
        audit.record(session, AuditAction.DELETED, f"run {run_id}", run.project, {"name": run.name})
        return _sizes(session, [run_id])[run_id]


def restore(store: Store, run_id: str, now: float) -> None:
    """Bring a deleted run back as it was; a project that has another baseline by now keeps it. Raises NoSuchRun."""
    with store.write() as session:
        run = _run(session, run_id, is_deleted=True)
        run.deleted_at = run.deleted_by = None
        add_history(session, run_id, latest_attempt(session, run_id).number, now, "brought back after its deletion")
        audit.record(session, AuditAction.RESTORED, f"run {run_id}", run.project, {"name": run.name})


def erase(store: Store, run_id: str, now: float) -> Erased:
    """Delete an ended run and all its rows for good; the caller removes its files and checkpoints.

    Raises NoSuchRun, WrongState."""
    with store.write() as session:
        _ended(session, run_id)
        run = session.get_one(Run, run_id)
        audit.record(session, AuditAction.ERASED, f"run {run_id}", run.project, {"name": run.name})
        fences = select(Attempt.fence).where(Attempt.run_id == run_id)
        files = session.execute(select(File.id, File.size_bytes).where(File.fence.in_(fences))).all()
        checkpoints = list(session.scalars(select(Checkpoint).where(Checkpoint.fence.in_(fences))))
        discard(session, checkpoints, now)
        rows = session.execute(select(Attempt.fence, Attempt.uid).where(Attempt.run_id == run_id))
        session.add_all([DeletedAttempt(fence=fence, uid=uid) for fence, uid in rows])
        session.execute(delete_rows(Run).where(Run.id == run_id))
        stored_bytes = sum(size for _, size in files) + sum(row.received_bytes for row in checkpoints)
        return Erased([file_id for file_id, _ in files], [row.id for row in checkpoints], stored_bytes)


def deleted_runs(store: Store) -> list[DeletedRun]:
    """The deleted runs that the actor could bring back, the newest deletions first."""
    query = select(Run).where(Run.deleted_at.is_not(None)).order_by(Run.deleted_at.desc(), Run.id).limit(MOST)
    rights = acting.rights()
    with store.read() as session:
        runs = [run for run in session.scalars(query) if rights.may(Action.RESTORE, run.project)]
        sizes = _sizes(session, [run.id for run in runs])
        return [_view(run, sizes[run.id]) for run in runs]


def due(store: Store, deleted_before: float) -> str | None:
    """The id of a run that was deleted before this time, the first deletion first."""
    is_due = Run.deleted_at <= deleted_before
    with store.read() as session:
        return session.scalars(select(Run.id).where(is_due).order_by(Run.deleted_at, Run.id).limit(1)).first()


def _view(run: Run, size_bytes: int) -> DeletedRun:
    deleted_at = run.deleted_at or 0.0
    return DeletedRun(run.id, run.name, run.project, run.by, deleted_at, run.deleted_by, size_bytes)


def _run(session: Session, run_id: str, is_deleted: bool) -> Run:
    run = session.get(Run, run_id)
    if run is None or (run.deleted_at is not None) != is_deleted:
        raise NoSuchRun(f"There is no {'deleted ' if is_deleted else ''}run {run_id!r}.")
    return run


def _ended(session: Session, run_id: str) -> Attempt:
    last = latest_attempt(session, run_id)
    if last.state not in TERMINAL_STATES:
        raise WrongState(f"Run {run_id} has not ended; stop it first, then delete it.")
    return last


def _sizes(session: Session, run_ids: Collection[str]) -> Counter[str]:
    """The stored bytes of each run that has some."""
    sizes = Counter[str]()
    for table, column in ((File, File.size_bytes), (Checkpoint, Checkpoint.received_bytes)):
        stored = select(Attempt.run_id, func.sum(column)).join(table, table.fence == Attempt.fence)
        for run_id, size in session.execute(stored.where(Attempt.run_id.in_(run_ids)).group_by(Attempt.run_id)):
            sizes[run_id] += int(size)
    return sizes
