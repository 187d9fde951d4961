"""Store workers' reports about attempts; repeated, late or out-of-order reports count once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from sqlalchemy import Row, Table, bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from db.engine import Store
from db.lifecycle.attempt_state import combine
from db.metrics import points
from db.models import Attempt, File, Node, Series, Task
from db.postgres import NUL, NUL_SHOWN
from db.preflight import start_gate
from db.records.exceptions import Superseded
from db.records.history import add_history
from db.records.lookups import AttemptKey, attempt_of_node, attempt_scope, part_of_node
from db.reports import checkpoints
from domain import not_finite
from domain.messages import TERMINAL_STATES, Point, PointBatch, State, TaskReport

MAX_SERIES = 10_000
"""Maximum number of series of one attempt; further ones are dropped with a history line."""


NOT_COLUMNS = {"state", "master_addr", "master_port", "fetching"}
"""Fields of a report that are not columns of its task."""
_FILE = select(File).where(
    File.fence == bindparam("fence"), File.node_rank == bindparam("node_rank"),
    File.path == bindparam("path"), File.generation == bindparam("generation"),
)  # fmt: skip
# Statements of tables, not of classes, where points and bytes arrive: their rows cost half as much.
_FILES, _SERIES = cast(Table, File.__table__), cast(Table, Series.__table__)
_STORED = select(_FILES.c.id, _FILES.c.size_bytes, _FILES.c.points_offset).where(
    _FILES.c.fence == bindparam("fence"), _FILES.c.node_rank == bindparam("node_rank"),
    _FILES.c.path == bindparam("path"), _FILES.c.generation == bindparam("generation"),
)  # fmt: skip
_CHANGE_FILE = update(_FILES).where(_FILES.c.id == bindparam("of"))
_GROW_FILE = _CHANGE_FILE.where(_FILES.c.size_bytes == bindparam("start"))
_SIZE = select(_FILES.c.size_bytes).where(_FILES.c.id == bindparam("of"))
_OF_TAGS = select(_SERIES).where(
    _SERIES.c.fence == bindparam("fence"), _SERIES.c.node_rank == bindparam("node_rank"),
    _SERIES.c.source == bindparam("source"), _SERIES.c.tag.in_(bindparam("tags", expanding=True)),
)  # fmt: skip
_COUNT = [*_SERIES.c.keys()].index("count")
"""A row has a method of that name."""
_CHANGE_SERIES = update(_SERIES).where(_SERIES.c.id == bindparam("of"))
# Built once: building a statement takes longer than running it, and points arrive many times a second.


class _FileState(NamedTuple):
    """How far the server has a mirrored file."""

    id: int
    size_bytes: int
    points_offset: int


@dataclass(frozen=True)
class Arrival:
    """The stored offset after points were offered, and the new points for live pages."""

    offset: int
    stored: bool
    run_id: str
    attempt: int
    series: dict[str, Sequence[Point]] = field(default_factory=dict)


def part_reported(
    store: Store,
    node_id: str,
    fence: int,
    node_rank: int,
    report: TaskReport,
    now: float,
    *,
    measure: bool = False,
) -> State:
    """Store a node's report about its task; return the attempt's state. Raises NotOwner, Superseded.

    `measure`: measure the bandwidth of new pairs of nodes before the start."""
    with store.write(attempt_scope(fence)) as session:
        part, attempt = part_of_node(session, node_id, fence, node_rank)
        if part.lost_at is not None and report.state in TERMINAL_STATES:
            _end_of_lost_part(session, part, attempt, report, now)
            return State(attempt.state)
        if attempt.state in TERMINAL_STATES:
            if part.state != report.state:
                raise Superseded(f"Attempt {attempt.run_id}/{attempt.number} has ended ({attempt.state}).")
            return State(attempt.state)
        if part.state not in TERMINAL_STATES:
            might_start = start_gate.may_start(session, fence)
            _copy_report(part, report, now)
            _store_endpoint(session, attempt, part, report, now)
            if not might_start:
                session.flush()
                start_gate.go_on(session, attempt, now, measure=measure)
            if report.fetching is not None:
                checkpoints.record_fetch_progress(session, attempt, part, report.fetching, now)
        combine(session, attempt, now)
        return State(attempt.state)


def points_arrived(store: Store, node_id: str, fence: int, node_rank: int, batch: PointBatch) -> Arrival:
    """Store the points of one byte range together with the new offset, exactly once. Raises NotOwner, Superseded.

    When the range does not begin at the stored offset, nothing is stored; continue at the returned offset."""
    with store.write(attempt_scope(fence)) as session:
        attempt = attempt_of_node(session, node_id, fence, node_rank)
        file = _file_state(session, fence, node_rank, batch.path, batch.generation)
        if file.points_offset != batch.start:
            return Arrival(file.points_offset, False, attempt.run_id, attempt.number)
        session.execute(_CHANGE_FILE, {"of": file.id, "points_offset": batch.end})
        store_series(session, attempt, node_rank, batch.source, batch.series)
        return Arrival(batch.end, True, attempt.run_id, attempt.number, dict(batch.series))


def file_offsets(
    store: Store, node_id: str, fence: int, node_rank: int, path: str, generation: int
) -> tuple[int, int]:
    """(bytes mirrored, bytes whose points are stored) of a file; (0, 0) for a new one. Raises NotOwner, Superseded."""
    with store.read() as session:
        part_of_node(session, node_id, fence, node_rank)
        file = _stored_file(session, fence, node_rank, path, generation)
        return (file.size_bytes, file.points_offset) if file else (0, 0)


def file_for_append(
    store: Store, node_id: str, fence: int, node_rank: int, path: str, generation: int
) -> tuple[int, int]:
    """(file id, durable bytes) of a mirrored file, registered if it is new. Raises NotOwner, Superseded."""
    with store.write(attempt_scope(fence)) as session:
        attempt_of_node(session, node_id, fence, node_rank)
        file = _file_state(session, fence, node_rank, path, generation)
        return file.id, file.size_bytes


def file_grew(store: Store, file_id: int, start: int, end: int) -> int:
    """Record that bytes up to `end` are durable if `start` were before; return the number of durable bytes."""
    with store.write(f"file {file_id}") as session:
        session.execute(_GROW_FILE, {"of": file_id, "start": start, "size_bytes": end})
        return int(session.scalars(_SIZE, {"of": file_id}).one())


def contact_changed(store: Store, run_id: str, attempt: int, now: float, text: str) -> None:
    """Add a history line about a node that fell silent or has contact again."""
    with store.write(f"run {run_id}") as session:
        add_history(session, run_id, attempt, now, text)


def _end_of_lost_part(session: Session, part: Task, attempt: Attempt, report: TaskReport, now: float) -> None:
    """Record that a lost node is back and its task has ended; the attempt's end is already decided."""
    part.lost_at, part.exit_code, part.reported_at = None, report.exit_code, now
    node = session.get_one(Node, part.node_id).name
    text = f"{node} is back: no process of this attempt is left there, its devices are free again"
    add_history(session, attempt.run_id, attempt.number, now, text)


def _copy_report(part: Task, report: TaskReport, now: float) -> None:
    part.state, part.reported_at = report.state, now
    columns = report.model_dump(exclude_none=True, mode="json", exclude=NOT_COLUMNS)
    for name, value in columns.items():
        setattr(part, name, value)


def _store_endpoint(session: Session, attempt: Attempt, part: Task, report: TaskReport, now: float) -> None:
    if part.node_rank != 0 or not (report.master_addr and report.master_port):
        return
    if attempt.master_port not in (None, report.master_port):
        text = f"port {attempt.master_port} was taken by another program: rendezvous at port {report.master_port}"
        add_history(session, attempt.run_id, attempt.number, now, text)
    attempt.master_addr, attempt.master_port = report.master_addr, report.master_port


def file_of(session: Session, fence: int, node_rank: int, path: str, generation: int) -> File:
    """The row of a mirrored file; a new one if it has none yet."""
    file = _stored_file(session, fence, node_rank, path, generation)
    if file is None:
        file = File(fence=fence, node_rank=node_rank, path=path, generation=generation)
        file.size_bytes = file.points_offset = 0
        session.add(file)
    return file


def _file_state(session: Session, fence: int, node_rank: int, path: str, generation: int) -> _FileState:
    """The state of a mirrored file, which gets a row where it has none."""
    key = {"fence": fence, "node_rank": node_rank, "path": path, "generation": generation}
    row = session.execute(_STORED, key).first()
    if row is None:
        file_of(session, fence, node_rank, path, generation)
        session.flush()
        row = session.execute(_STORED, key).one()
    return _FileState(*row)


def _stored_file(session: Session, fence: int, node_rank: int, path: str, generation: int) -> File | None:
    key = {"fence": fence, "node_rank": node_rank, "path": path, "generation": generation}
    return session.scalars(_FILE, key).first()


def store_series(
    session: Session,
    attempt: Attempt | AttemptKey,
    node_rank: int,
    source: str,
    series: Mapping[str, list[Point]],
) -> None:
    """Append points to the series of an attempt, and to what its figures are read from."""
    arrived = {tag.replace(NUL, NUL_SHOWN): pts for tag, pts in series.items() if pts}
    series_by_tag = _series_by_tag(session, attempt.fence, node_rank, source, [*arrived])
    fresh = [tag for tag in arrived if tag not in series_by_tag]
    if fresh:
        series_by_tag |= _new_series(session, attempt, node_rank, source, arrived, fresh)
    new_points = {
        series_by_tag[tag].id: (series_by_tag[tag][_COUNT], pts)
        for tag, pts in arrived.items()
        if tag in series_by_tag
    }
    points.append(session, new_points)
    changed = [_summary(series_by_tag[tag], pts) for tag, pts in arrived.items() if tag in series_by_tag]
    if changed:
        session.execute(_CHANGE_SERIES, changed)


def _new_series(
    session: Session,
    attempt: Attempt | AttemptKey,
    node_rank: int,
    source: str,
    arrived: dict[str, list[Point]],
    tags: list[str],
) -> dict[str, Row[Any]]:
    existing = session.scalar(select(func.count()).where(Series.fence == attempt.fence)) or 0
    available = max(0, MAX_SERIES - existing)
    if len(tags) > available > 0:
        text = f"more than {MAX_SERIES} series: further names are not stored"
        add_history(session, attempt.run_id, attempt.number, arrived[tags[0]][0][2], text)
    rows = [_empty_series(attempt.fence, node_rank, source, tag, arrived[tag][0]) for tag in tags[:available]]
    if not rows:
        return {}
    session.execute(insert(Series), rows)
    return _series_by_tag(session, attempt.fence, node_rank, source, tags)


def _series_by_tag(
    session: Session, fence: int, node_rank: int, source: str, tags: Sequence[str]
) -> dict[str, Row[Any]]:
    key = {"fence": fence, "node_rank": node_rank, "source": source, "tags": tags}
    return {series.tag: series for series in session.execute(_OF_TAGS, key)}


def _empty_series(fence: int, node_rank: int, source: str, tag: str, first: Point) -> dict[str, object]:
    step, value, wall = first
    return {
        "fence": fence,
        "node_rank": node_rank,
        "source": source,
        "tag": tag,
        "count": 0,
        "first_step": step,
        "last_step": step,
        "first_wall": wall,
        "last_wall": wall,
        "last_value": value,
        "last_number": None if math.isnan(value) else value,
        "lowest": None,
        "highest": None,
        "finite_sum": 0.0,
        "finite_count": 0,
        "not_finite_since": None,
    }


def _summary(series: Row[Any], pts: Sequence[Point]) -> dict[str, object]:
    steps, values, _ = zip(*pts, strict=True)
    finite = [*filter(math.isfinite, values)]
    before, since = series.last_value, series.not_finite_since
    if since is not None or len(finite) < len(values):
        for step, value in zip(steps, values, strict=True):
            since = not_finite.since(value, step, before, since)
            before = value
    last = pts[-1]
    return {
        "of": series.id,
        "count": series[_COUNT] + len(pts),
        "first_step": min(series.first_step, *steps),
        "last_step": max(series.last_step, *steps),
        "last_wall": last[2],
        "last_value": last[1],
        "last_number": None if math.isnan(last[1]) else last[1],
        "lowest": min((v for v in (series.lowest, *finite) if v is not None), default=None),
        "highest": max((v for v in (series.highest, *finite) if v is not None), default=None),
        "finite_sum": series.finite_sum + sum(finite),
        "finite_count": series.finite_count + len(finite),
        "not_finite_since": since,
    }
