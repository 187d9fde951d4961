"""Delete runs in two steps: for everybody at once, and for good with all rows once they are due; undo the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Select, func, select, update
from sqlalchemy import delete as delete_rows
from sqlalchemy.orm import Session, aliased

from db import acting
from db.attempts import deliveries
from db.budgets import charges
from db.checkpoints.checkpoint_reports import discard
from db.engine import Store
from db.exceptions import WrongState
from db.lookups import add_history, latest_attempt
from db.models import Attempt, Checkpoint, CheckpointTask, DeletedAttempt, File, Run
from db.people import audit, notices
from db.people.permission import permitted_run
from db.runs.run_requests import end
from domain.messages import TERMINAL_STATES, State
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
    may_restore: bool
    """Whether the actor may restore it."""


class Erased(NamedTuple):
    """What an erased run leaves on the disk until it is removed there."""

    run_id: str
    file_ids: list[int]
    checkpoint_ids: list[int]
    freed_bytes: int


def delete(store: Store, run_id: str, now: float) -> int:
    """Hide an ended run from everybody; returns the bytes that are free once it is erased.

    Raises NoSuchRun, WrongState, Denied."""
    with store.write() as session:
        run, last = permitted_run(session, Action.ACT, run_id), _ended(session, run_id)
        run.deleted_at, run.deleted_by = now, acting.rights().by
        deliveries.end(session, run_id, now)
        add_history(session, run_id, last.number, now, "deleted")
        audit.record_of_run(session, AuditAction.DELETED, run)
        if (by := run.deleted_by) is not None and by != run.by:
            notices.record(session, run, f"{by} deleted your run {run.name}.", now)
        return _sizes(session, [run_id])[run_id]


def restore(store: Store, run_id: str, now: float) -> None:
    """Restore a deleted run unchanged; a project that has another baseline by now keeps it.

    Raises NoSuchRun, Denied."""
    with store.write() as session:
        run = permitted_run(session, Action.ACT, run_id, is_deleted=True)
        run.deleted_at = run.deleted_by = None
        add_history(session, run_id, latest_attempt(session, run_id).number, now, "restored after its deletion")
        audit.record_of_run(session, AuditAction.RESTORED, run)


def erase(store: Store, run_id: str, now: float, action: Action = Action.ERASE, *, is_deleted: bool = False) -> Erased:
    """Delete an ended run and all its rows for good; the caller removes its files and checkpoints.

    `action`: what the actor needs the right to; `is_deleted`: the run is one that was deleted before.
    Raises NoSuchRun, WrongState, Denied."""
    with store.write() as session:
        run = permitted_run(session, action, run_id, is_deleted=is_deleted)
        _ended(session, run_id)
        if session.scalar(select(Run.id).where(Run.id == run_id, Run.id.in_(_NEEDED))):
            raise WrongState(f"Another run is about to start from a checkpoint of {run_id}: wait until it trains.")
        return _erase(session, run, now)


def erase_due(store: Store, deleted_before: float, now: float) -> Erased | None:
    """Erase the run that was deleted first, unless that was later than `deleted_before`; None where none is due."""
    with store.read() as session:
        if session.scalars(_due(deleted_before)).first() is None:
            return None
    with store.write() as session:  # somebody may have restored it meanwhile
        run = session.scalars(_due(deleted_before)).first()
        return _erase(session, run, now) if run else None


def end_deleted(store: Store, now: float) -> list[str]:
    """Ask for the end of attempts whose run is deleted nevertheless, by an older version; return the runs' ids."""
    with store.read() as session:
        if session.scalars(_LIVE_THOUGH_DELETED).first() is None:
            return []
    with store.write() as session:
        attempts = session.scalars(_LIVE_THOUGH_DELETED).all()
        for attempt in attempts:
            end(session, attempt, now, "its run was deleted", "Ended: its run was deleted.")
        return [attempt.run_id for attempt in attempts]


def deleted_runs(store: Store) -> list[DeletedRun]:
    """The deleted runs of the projects in which the actor is a member, the newest deletions first."""
    query = select(Run).where(Run.deleted_at.is_not(None)).order_by(Run.deleted_at.desc(), Run.id).limit(MOST)
    rights = acting.rights()
    with store.read() as session:
        runs = [run for run in session.scalars(query) if rights.may(Action.SEE_DELETED, run.project)]
        sizes = _sizes(session, [run.id for run in runs])
        return [_view(run, sizes[run.id]) for run in runs]


_LIVE = select(Attempt.run_id).where(Attempt.state.not_in(TERMINAL_STATES))
_ORIGIN = aliased(Attempt)
_NEEDED = (
    select(_ORIGIN.run_id)
    .join(Checkpoint, Checkpoint.fence == _ORIGIN.fence)
    .join(Attempt, Attempt.resume_checkpoint_id == Checkpoint.id)
    .where(Attempt.state.in_((State.QUEUED, State.STARTING)))
)
"""Runs from whose checkpoints an attempt is about to start."""
_LIVE_THOUGH_DELETED = (
    select(Attempt)
    .join(Run, Run.id == Attempt.run_id)
    .where(Attempt.state.not_in(TERMINAL_STATES), Attempt.stop_requested_at.is_(None), Run.deleted_at.is_not(None))
)
"""Built once: it runs every second."""


_FILE_BYTES = func.coalesce(func.nullif(File.compressed_bytes, 0), File.size_bytes)
"""Bytes of a file on disk."""


def _due(deleted_before: float) -> Select[Run]:
    """Runs that were deleted before this time, and that nothing trains or starts from; the first deletion first."""
    due = select(Run).where(Run.deleted_at <= deleted_before, Run.id.not_in(_LIVE), Run.id.not_in(_NEEDED))
    return due.order_by(Run.deleted_at, Run.id).limit(1)


def _erase(session: Session, run: Run, now: float) -> Erased:
    audit.record_of_run(session, AuditAction.ERASED, run)
    fences = select(Attempt.fence).where(Attempt.run_id == run.id)
    files = session.execute(select(File.id, _FILE_BYTES).where(File.fence.in_(fences))).all()
    checkpoints = list(session.scalars(select(Checkpoint).where(Checkpoint.fence.in_(fences))))
    discard(session, checkpoints, now)
    # SQLite gives their ids to the next checkpoints, of whatever run: no attempt or diff may have those.
    erased = select(Checkpoint.id).where(Checkpoint.fence.in_(fences.correlate(None)))
    session.execute(update(Attempt).where(Attempt.resume_checkpoint_id.in_(erased)).values(resume_checkpoint_id=None))
    session.execute(delete_rows(CheckpointTask).where(CheckpointTask.other_id.in_(erased)))
    rows = session.execute(select(Attempt.fence, Attempt.uid).where(Attempt.run_id == run.id))
    session.add_all([DeletedAttempt(fence=fence, uid=uid) for fence, uid in rows])
    charges.keep(session, run.id)
    session.execute(delete_rows(Run).where(Run.id == run.id))
    stored_bytes = sum(size for _, size in files) + sum(row.received_bytes for row in checkpoints)
    return Erased(run.id, [file_id for file_id, _ in files], [row.id for row in checkpoints], stored_bytes)


def _view(run: Run, size_bytes: int) -> DeletedRun:
    deleted_at, may_restore = run.deleted_at or 0.0, acting.rights().may(Action.ACT, run.project, run.by)
    return DeletedRun(run.id, run.name, run.project, run.by, deleted_at, run.deleted_by, size_bytes, may_restore)


def _ended(session: Session, run_id: str) -> Attempt:
    last = latest_attempt(session, run_id)
    if last.state not in TERMINAL_STATES:
        raise WrongState(f"Run {run_id} has not ended; stop it first, then delete it.")
    return last


def _sizes(session: Session, run_ids: Collection[str]) -> Counter[str]:
    """The stored bytes of each run that has some."""
    sizes = Counter[str]()
    for table, column in ((File, _FILE_BYTES), (Checkpoint, Checkpoint.received_bytes)):
        stored = select(Attempt.run_id, func.sum(column)).join(table, table.fence == Attempt.fence)
        for run_id, size in session.execute(stored.where(Attempt.run_id.in_(run_ids)).group_by(Attempt.run_id)):
            sizes[run_id] += int(size)
    return sizes
