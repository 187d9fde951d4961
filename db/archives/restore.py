"""Write a run that was archived elsewhere into this store: all of it, or nothing.

Its points come first, in small transactions and unseen; one more transaction stores the run and gives them to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from sqlalchemy import and_, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.sql import ColumnElement

from db import acting
from db.archives.documents import AttemptDocument, RunDocument, checked, row_of
from db.engine import Store
from db.exceptions import WrongState
from db.lookups import add_history, latest_attempt
from db.metrics import points
from db.models import (
    Attempt,
    Checkpoint,
    File,
    FindingRow,
    HistoryEntry,
    ImportedRun,
    Node,
    ProfiledRank,
    Run,
    RunTag,
    Series,
    Task,
    WatchedRun,
    new_id,
)
from db.people import audit
from db.people.visibility import sees_everything, visible_runs
from domain.choices import ExportFormat
from domain.clock import SYSTEM_CLOCK
from domain.messages import TERMINAL_STATES, Point
from domain.people.audit import AuditAction
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec


class ArchiveSource(NamedTuple):
    """Where a run is imported from."""

    source: str
    """The machine and path of the archive."""
    digest: str
    """SHA-256 of everything of the run in it."""


class ArchivedBytes(Protocol):
    """The bytes that belong to a run's rows, by the rows' ids in the store they come from."""

    def chunks(self, series_id: int) -> Iterator[bytes]:
        """The packed chunks of a series. Raises InvalidRequest."""

    def move_file(self, archived_id: int, file_id: int, size_bytes: int) -> None:
        """Move a mirrored file of this size to its place here. Raises InvalidRequest."""

    def move_checkpoint(self, archived_id: int, checkpoint_id: int, sha256: str, size_bytes: int) -> None:
        """Move a checkpoint with this digest and size to its place here. Raises InvalidRequest."""


def imported_before(store: Store, digest: str) -> str | None:
    """The id of the run that was imported from an archive with this digest, among those that the actor may see."""
    same = select(ImportedRun.run_id).join(Run, Run.id == ImportedRun.run_id).where(visible_runs())
    with store.read() as session:
        return session.scalars(same.where(ImportedRun.digest == digest)).first()


def id_here(archived_id: str) -> str:
    """The id that an archived run gets: its own where the actor sees everything.

    Else a new one, whether or not a hidden run has its id: nothing tells that it is taken."""
    return archived_id if sees_everything() else new_id()


def restore(
    store: Store,
    run_id: str,
    document: RunDocument,
    content: ArchivedBytes,
    origin: ArchiveSource,
    clock: Callable[[], float],
) -> None:
    """Store a run under an id, with its points, and move its files; it stays invisible until complete.

    Raises WrongState where a run of this id is here, InvalidRequest, ValidationError."""
    with store.read() as session:
        _require_new(session, run_id)
    try:
        with Staging(store, clock) as staging:
            staged = _stage(staging, document, content)
            with store.write() as session:
                _Restoration(session, content, staged, clock()).run(run_id, document, origin)
    except IntegrityError:
        raise InvalidRequest("archive", "The archive was not imported: its rows contradict each other.") from None


def _stage(staging: Staging, document: RunDocument, content: ArchivedBytes) -> dict[int, StagedSeries]:
    """Store the points of all series; return them by the series' ids in the archive. Raises InvalidRequest."""
    staged = {}
    for series in (series for attempt in document.attempts for series in attempt.series):
        values, archived_id = checked(Series, series), _id(series)
        staged[archived_id] = staging.add(content.chunks(archived_id))
        if (stored := staged[archived_id].points) != values["count"]:
            raise InvalidRequest(
                "archive",
                f"The archive has {stored} points of {values['tag'][:80]!r}, but lists {values['count']}: damaged.",
            )
    return staged


def _require_new(session: Session, run_id: str) -> None:
    run = session.get(Run, run_id)
    if run is not None and run.deleted_at is not None:
        raise WrongState(
            f"Run {run_id} was deleted here and is still kept: an admin can restore it, or delete it for good with "
            f"`rankzero delete --now {run_id}`, then it can be imported."
        )
    if run is not None:
        raise WrongState(f"Run {run_id} already exists here. Delete it before you import it.")


def _of_elsewhere(row: Signed) -> Signed:
    """The row, signed as what it is: names of another installation, or made up, are nobody's here."""
    if row.by is not None:
        row.by, row.via = None, f"{row.by}{ELSEWHERE}"
    return row


Signed = TypeVar("Signed", Attempt, HistoryEntry)
ELSEWHERE = " (elsewhere)"


class _Restoration:
    """One run on its way into the store, and the ids that its rows have here."""

    def __init__(
        self, session: Session, content: ArchivedBytes, staged: Mapping[int, StagedSeries], now: float
    ) -> None:
        self._session, self._content, self._staged, self._now = session, content, staged, now
        self._profiles: dict[str, str] = {}
        self._checkpoints: dict[int, int] = {}

    def run(self, run_id: str, document: RunDocument, origin: ArchiveSource) -> None:
        """Add the run with everything of it. Raises WrongState where a run of this id is here."""
        spec = RunSpec.model_validate(document.run.get("spec")).model_dump(mode="json")
        run = row_of(Run, document.run, spec=spec, id=run_id)
        _require_new(self._session, run.id)
        elsewhere, rights = run.by, acting.rights()
        run.by, run.via, run.deleted_at, run.deleted_by = rights.by, rights.via, None, None
        self._session.add(run)
        self._session.flush()
        self._session.add_all(RunTag(run_id=run.id, tag=tag) for tag in dict.fromkeys(document.tags))
        if document.watched is not None:
            self._session.add(row_of(WatchedRun, document.watched, run_id=run.id, key=None))
        self._add_nodes(document.nodes)
        for attempt in document.attempts:
            self._add_attempt(run.id, attempt)
        self._session.add_all(_of_elsewhere(row_of(HistoryEntry, line, run_id=run.id)) for line in document.history)
        launched = f", launched there by {elsewhere}" if elsewhere else ""
        add_history(self._session, run.id, None, self._now, f"imported (archive) from {origin.source}{launched}")
        audit.record_of_run(self._session, AuditAction.IMPORTED, run)
        self._session.add(self._mark(run.id, document.imported_from or ExportFormat.ARCHIVE, origin))

    def _mark(self, run_id: str, importer: str, origin: ArchiveSource) -> ImportedRun:
        last = latest_attempt(self._session, run_id)
        mark = ImportedRun(run_id=run_id, format=importer, **origin._asdict())
        mark.state, mark.message, mark.points = last.state, last.message, self._points()
        mark.ended_at, mark.completed_at = last.ended_at, self._now
        return mark

    def _add_nodes(self, nodes: list[dict[str, Any]]) -> None:
        """Add the nodes as removed ones, which only the history of their runs shows."""
        for values in nodes:
            node = row_of(Node, values, token_hash="", removed_at=self._now, instance_id=f"archived {values.get('id')}")
            if self._session.get(Node, node.id) is None:
                self._session.add(node)
        self._session.flush()

    def _add_attempt(self, run_id: str, document: AttemptDocument) -> None:
        values = checked(Attempt, document.attempt)
        resumed = self._checkpoints.get(values.pop("resume_checkpoint_id", None) or 0)
        attempt = _of_elsewhere(Attempt(**values, run_id=run_id, resume_checkpoint_id=resumed))
        _require_ended(attempt.state)
        self._session.add(attempt)
        self._session.flush()
        fence = attempt.fence
        for task in document.tasks:
            row = row_of(Task, task, fence=fence)
            _require_ended(row.state)
            self._session.add(row)
        self._session.add_all(row_of(FindingRow, finding, fence=fence) for finding in document.findings)
        for rank in document.profiled_ranks:
            self._session.add(row_of(ProfiledRank, rank, fence=fence, profile_id=self._profile(rank)))
        self._add_content(fence, document)

    def _add_content(self, fence: int, document: AttemptDocument) -> None:
        for series in document.series:
            self._take_over(fence, series)
        for values in document.files:
            file = row_of(File, values, fence=fence, id=None)
            self._session.add(file)
            self._session.flush()
            self._content.move_file(_id(values), file.id, file.size_bytes)
        for values in document.checkpoints:
            checkpoint = row_of(Checkpoint, values, fence=fence, id=None, complete=True)
            if checkpoint.merged_from is not None:  # 0: its source is not in the archive
                checkpoint.merged_from = self._checkpoints.get(checkpoint.merged_from, 0)
            self._session.add(checkpoint)
            self._session.flush()
            self._checkpoints[_id(values)] = checkpoint.id
            proof = checkpoint.sha256, checkpoint.size_bytes
            self._content.move_checkpoint(_id(values), checkpoint.id, *proof)

    def _take_over(self, fence: int, document: Mapping[str, Any]) -> None:
        """Give a series whose points are here its attempt and its own values."""
        staged_id = self._staged[_id(document)].id
        place = "fence" if document.get("past_fence") is None else "past_fence"
        values = checked(Series, document) | {"id": staged_id, "fence": None, "past_fence": None} | {place: fence}
        take = update(Series).where(Series.id == staged_id, _STAGED).values(**values)
        if self._session.scalar(take.returning(Series.id)) is None:
            raise InvalidRequest("archive", "The archive was not imported: a series is in it twice.")

    def _points(self) -> int:
        return sum(series.points for series in self._staged.values())

    def _profile(self, rank: Mapping[str, Any]) -> str:
        """Return the id that a profile gets here."""
        return self._profiles.setdefault(str(rank.get("profile_id")), new_id())


def _id(values: Mapping[str, Any]) -> int:
    return int(values["id"])


def _require_ended(state: str) -> None:
    if state not in TERMINAL_STATES:
        raise InvalidRequest("archive", f"The archive has an attempt that is {state[:20]!r}; it must have ended.")


log = logging.getLogger("rankzero")

# Points of a run on its way into the store: written in small transactions, under series still invisible.
#
# Other writers get through between two of them. A series without an attempt is in no list and no chart; the transaction
# that stores the run gives it its attempt. What a killed import leaves is deleted when nothing has come for a while.

PIECE_POINTS = 4096
"""Of one transaction: it takes about ten milliseconds."""
PAUSE_S = 0.005
"""Pause between two transactions, in which a waiting writer gets the store: its lock keeps no order."""
ABANDONED_AFTER_S = 900.0
_STAGED = and_(Series.fence.is_(None), Series.past_fence.is_(None))


class StagedSeries(NamedTuple):
    """A series whose points are stored, without an attempt."""

    id: int
    points: int


class Staging:
    """The series of one import; those that no attempt has got at its end are deleted."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock, self._owner = store, clock, new_id()

    def __enter__(self) -> Self:
        """Return it; nothing is stored yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Delete what a failed import has stored."""
        if kind is None:
            return
        try:
            self._discard()
        except Exception:  # the import's own failure is the one to report
            log.warning("an import that failed left points; they are deleted later", exc_info=True)

    def add(self, chunks: Iterable[bytes]) -> StagedSeries:
        """Store the packed points of one series; raises what `chunks` raises."""
        with self._store.write(self._scope) as session:
            session.add(series := _placeholder(self._owner, self._clock()))
        stored = 0
        for piece in _pieces(chunks):
            with self._store.write(self._scope) as session:
                points.append(session, {series.id: (stored, piece)})
                session.execute(update(Series).where(self._own).values(last_wall=self._clock()))
            stored += len(piece)
            SYSTEM_CLOCK.pause(PAUSE_S)
        return StagedSeries(series.id, stored)

    def _discard(self) -> None:
        with self._store.read() as session:
            ids = session.scalars(select(Series.id).where(self._own)).all()
        for series_id in ids:
            _delete(self._store, series_id, self._scope)

    @property
    def _scope(self) -> str:
        return f"import {self._owner}"

    @property
    def _own(self) -> ColumnElement[bool]:
        return and_(_STAGED, Series.tag == self._owner)


def delete_abandoned(store: Store, now: float) -> bool:
    """Delete one series that a killed import left; return whether there was one."""
    left = select(Series.id).where(_STAGED, Series.last_wall < now - ABANDONED_AFTER_S).limit(1)
    with store.read() as session:
        series_id = session.scalar(left)
    if series_id is not None:
        _delete(store, series_id, f"series {series_id}")
    return series_id is not None


def _delete(store: Store, series_id: int, scope: str) -> None:
    with store.write(scope) as session:
        session.execute(delete(Series).where(Series.id == series_id, _STAGED))


def _placeholder(owner: str, now: float) -> Series:
    """A row whose `tag` says which import it is of and whose `last_wall` when its last piece came."""
    return Series(
        fence=None, node_rank=-1, source="staged", tag=owner, count=0, first_step=0, last_step=0, first_wall=now,
        last_wall=now, last_value=0.0, finite_sum=0.0, finite_count=0,
    )  # fmt: skip


def _pieces(chunks: Iterable[bytes]) -> Iterator[list[Point]]:
    """Yield the points of the packed chunks, so many at a time as one transaction takes."""
    piece: list[Point] = []
    for chunk in chunks:
        piece += points.unpack(chunk)
        if len(piece) >= PIECE_POINTS:
            yield piece
            piece = []
    if piece:
        yield piece
