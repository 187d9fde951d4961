"""Store runs that trained elsewhere: as ended runs, whose points arrive in order and count once."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from db import acting
from db.attempts.new_attempt import open_attempt
from db.engine import Store
from db.exceptions import NoSuchRun
from db.lookups import add_history, latest_attempt
from db.metrics.point_reports import store_series
from db.models import Attempt, ImportedRun, Run, Series, new_id
from db.people import audit
from db.people.permission import permitted_run
from db.people.visibility import visible_runs
from db.tasks.task_reports import Arrival, file_of
from domain.choices import ExportFormat
from domain.imported_runs import ImportedPoints, ImportRequest
from domain.messages import State
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from domain.text.formats import plural

UNFINISHED = "Its import has not finished: import it again to complete it."
SETTINGS_FILE = "probe/loggers/settings-0.jsonl"
"""Where the settings of a run's loggers are, as for runs that the probe observed."""


@dataclass(frozen=True)
class Import:
    """An imported run, and how much of it is stored."""

    run_id: str
    is_new: bool
    points: int
    series: int
    is_complete: bool
    settings_file: tuple[int, int]
    """The id and size of the file for its settings."""


def begin(store: Store, request: ImportRequest, now: float) -> Import:
    """Create the run, or find the one that was imported before.

    One whose source has changed since loses its points: they are stored again. Raises Denied, InvalidRequest."""
    if request.format == ExportFormat.ARCHIVE:  # its run may train on here
        raise InvalidRequest("format", "format: import an archive with `rankzero import archive FILE`.")
    with store.write() as session:
        row = _imported_before(session, request)
        is_new = row is None
        if row is not None:
            permitted_run(session, Action.ACT, row.run_id)
        row = row or _create(session, request, now)
        if is_new or row.digest != request.digest:
            audit.record(session, AuditAction.IMPORTED, f"run {row.run_id}", request.project, {"name": request.name})
        if row.digest != request.digest:
            _start_again(session, row, request, now)
        return _progress(session, row, is_new)


def add_points(store: Store, run_id: str, batch: ImportedPoints, now: float) -> tuple[Import, Arrival]:
    """Store points if all before them are stored, and with the last ones the run's end. Raises NoSuchRun, Denied."""
    with store.write() as session:
        permitted_run(session, Action.ACT, run_id)
        row = session.get(ImportedRun, run_id)
        if row is None:
            raise NoSuchRun(f"There is no imported run {run_id!r}.")
        attempt = latest_attempt(session, run_id)
        is_next = row.points == batch.start and row.completed_at is None
        if is_next:
            store_series(session, attempt, 0, "events", batch.series, batch.writer)
            row.points += sum(map(len, batch.series.values()))
            if batch.is_last:
                _finish(session, row, attempt, now)
        arrival = Arrival(row.points, is_next, run_id, attempt.number, dict(batch.series))
        return _progress(session, row, False), arrival


def _imported_before(session: Session, request: ImportRequest) -> ImportedRun | None:
    same = select(ImportedRun).join(Run, Run.id == ImportedRun.run_id).where(visible_runs())
    same = same.where(ImportedRun.format == request.format)
    unchanged = session.scalars(same.where(ImportedRun.digest == request.digest)).first()
    return unchanged or session.scalars(same.where(ImportedRun.source == request.source)).first()


def _create(session: Session, request: ImportRequest, now: float) -> ImportedRun:
    spec = RunSpec(target=request.source, name=request.name, project=request.project, probe=False)
    spec_values = spec.model_dump(mode="json")
    run = Run(id=new_id(), name=request.name, project=request.project, spec=spec_values)
    run.by, run.via = acting.rights().by, acting.rights().via
    run.created_at = request.started_at
    session.add(run)
    session.flush()
    attempt = open_attempt(session, run.id, 1, None, request.started_at)
    attempt.state, attempt.message = State.STOPPED, UNFINISHED
    attempt.started_at = attempt.ended_at = request.started_at
    row = ImportedRun(run_id=run.id, format=request.format, source=request.source, digest=request.digest)
    _describe(row, request)
    session.add(row)
    session.flush()
    add_history(session, run.id, 1, now, f"imported ({request.format}) from {request.source}")
    return row


def _describe(row: ImportedRun, request: ImportRequest) -> None:
    row.state, row.message, row.ended_at = request.state, request.message, request.ended_at
    row.points, row.completed_at, row.digest = 0, None, request.digest


def _start_again(session: Session, row: ImportedRun, request: ImportRequest, now: float) -> None:
    attempt = latest_attempt(session, row.run_id)
    session.execute(delete(Series).where(Series.fence == attempt.fence))
    attempt.state, attempt.message = State.STOPPED, UNFINISHED
    _describe(row, request)
    add_history(session, row.run_id, attempt.number, now, "its source has changed: imported again")


def _finish(session: Session, row: ImportedRun, attempt: Attempt, now: float) -> None:
    last = session.scalar(select(func.max(Series.last_wall)).where(Series.fence == attempt.fence))
    started_at = attempt.started_at or 0.0
    attempt.state, attempt.message = row.state, row.message
    attempt.ended_at = max(started_at, row.ended_at or last or started_at)
    row.completed_at = now
    add_history(session, row.run_id, attempt.number, now, f"import complete: {plural(row.points, 'point')}")


def _progress(session: Session, row: ImportedRun, is_new: bool) -> Import:
    fence = latest_attempt(session, row.run_id).fence
    series = session.scalar(select(func.count()).where(Series.fence == fence)) or 0
    file = file_of(session, fence, 0, SETTINGS_FILE, 0)
    session.flush()
    return Import(row.run_id, is_new, row.points, series, row.completed_at is not None, (file.id, file.size_bytes))
