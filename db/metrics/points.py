"""Points of a series, packed in chunks, with downsampled levels kept while writing.

Rows per point are ten to fifteen times slower than packed chunks, so 256 points share a row. When a chunk is
full it is reduced, 16 points at a time, to their extremes, and these become points of the level above: every
level has about an eighth of the points of the one below, and a series of a million points opens by reading a
few thousand.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import numpy as np
from sqlalchemy import ColumnElement, Table, bindparam, func, insert, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from db.engine import Store
from db.metrics import columns
from db.metrics.series_names import public_name
from db.models import Attempt, Chunk, Run, Series
from db.statements import Prepared
from domain.messages import Point
from domain.points import PackedPoints


def pack(points: Iterable[Point]) -> bytes:
    """All steps (int64), then all values, then all wall times (float64), little-endian."""
    return PackedPoints.of(points).chunk()


def extremes(points: PackedPoints) -> PackedPoints:
    """The smallest and largest value and the first NaN or infinity of each bucket, in their original order."""
    chosen = columns.extremes(np.frombuffer(points.values, "<f8"), BUCKET_POINTS)
    parts = (points.steps, points.values, points.walls)
    return PackedPoints(*(np.frombuffer(column, "<i8")[chosen].tobytes() for column in parts))


CHUNK_POINTS = 256
BUCKET_POINTS = 16
_CHUNKS = cast(Table, Chunk.__table__)

# Built once and run for all series at a time: points arrive many times a second.
_INSERT = Prepared(
    insert(_CHUNKS), "points", "step_min", "step_max", "count", "series_id", "level", "seq",
)  # fmt: skip
_REPLACE = Prepared(
    update(_CHUNKS)
    .where(_CHUNKS.c.series_id == bindparam("of"), _CHUNKS.c.level == bindparam("at"))
    .where(_CHUNKS.c.seq == bindparam("number")),
    "points", "step_min", "step_max", "count", "of", "at", "number",
)  # fmt: skip
_TAILS = (
    select(_CHUNKS.c.series_id, _CHUNKS.c.points)
    .where(_CHUNKS.c.series_id.in_(bindparam("series", expanding=True)), _CHUNKS.c.level == bindparam("at"))
    .where(_CHUNKS.c.seq == bindparam("number"))
)
_COUNTS = (
    select(_CHUNKS.c.series_id, func.sum(_CHUNKS.c.count))
    .where(_CHUNKS.c.series_id.in_(bindparam("series", expanding=True)), _CHUNKS.c.level == bindparam("at"))
    .group_by(_CHUNKS.c.series_id)
)


def unpack(*blobs: bytes) -> list[Point]:
    """The inverse of `pack`, for chunks in their order."""
    return [point for blob in blobs for point in PackedPoints.of_chunk(blob)]


def append(session: Session, new_points: Mapping[int, tuple[int, Iterable[Point]]]) -> None:
    """Add points to several series at once: {series id: (points it has already, new points)}."""
    packed = {series: (already, PackedPoints.of(new)) for series, (already, new) in new_points.items()}
    _append_at_level(session, 0, packed)


def read(session: Session, series_id: int, since_step: int | None = None, until_step: int | None = None) -> list[Point]:
    """All points of a series from `since_step` to `until_step`, both included, in the order they came."""
    query = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0).order_by(Chunk.seq)
    if since_step is not None:
        query = query.where(Chunk.step_max >= since_step)
    if until_step is not None:
        query = query.where(Chunk.step_min <= until_step)
    points = unpack(*session.scalars(query))
    if since_step is None and until_step is None:
        return points
    first = -math.inf if since_step is None else since_step
    last = math.inf if until_step is None else until_step
    return [point for point in points if first <= point[0] <= last]


def tail(session: Session, series_id: int, count: int) -> list[Point]:
    """The last points of a series in the order they came, `count` of them where it has as many."""
    chunks = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0)
    last = session.scalars(chunks.order_by(Chunk.seq.desc()).limit(2 + count // CHUNK_POINTS)).all()
    return unpack(*reversed(last))[-count:]


def head(session: Session, series_id: int, count: int) -> list[Point]:
    """The first points of a series in the order they came, `count` of them where it has as many."""
    chunks = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0).order_by(Chunk.seq)
    return unpack(*session.scalars(chunks.limit(1 + count // CHUNK_POINTS)))[:count]


def until(session: Session, series_id: int, step: int, count: int) -> list[Point]:
    """The last points of a series up to a step, `count` of them where it has as many."""
    chunks = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0, Chunk.step_min <= step)
    last = session.scalars(chunks.order_by(Chunk.seq.desc()).limit(2 + count // CHUNK_POINTS)).all()
    return [point for point in unpack(*reversed(last)) if point[0] <= step][-count:]


def value_at(session: Session, series_id: int, step: int) -> float | None:
    """The last value logged for a step, or None."""
    where = (
        Chunk.series_id == series_id,
        Chunk.level == 0,
        Chunk.step_min <= step,
        Chunk.step_max >= step,
    )
    for blob in session.scalars(select(Chunk.points).where(*where).order_by(Chunk.seq.desc())):
        for point in reversed(unpack(blob)):
            if point[0] == step:
                return point[1]
    return None


def _append_at_level(session: Session, level: int, new_points: Mapping[int, tuple[int, PackedPoints]]) -> None:
    tails = _tails(session, level, {s: n // CHUNK_POINTS for s, (n, _) in new_points.items() if n % CHUNK_POINTS})
    inserts, updates = list[tuple[int, int, PackedPoints]](), list[tuple[int, int, PackedPoints]]()
    full: dict[int, PackedPoints] = {}
    for series_id, (already, points) in new_points.items():
        tail = tails.get(series_id)
        joined = tail.followed_by(points) if tail else points
        count = len(joined)
        for number, start in enumerate(range(0, count, CHUNK_POINTS), already // CHUNK_POINTS):
            chunk = joined.part(start, start + CHUNK_POINTS) if count > CHUNK_POINTS else joined
            (updates if tail and start == 0 else inserts).append((series_id, number, chunk))
        if whole := count - count % CHUNK_POINTS:
            full[series_id] = extremes(joined.part(0, whole))
    _INSERT.run(session, _rows(level, inserts))
    _REPLACE.run(session, _rows(level, updates))
    if full:
        counts = _counts_of(session, level + 1, full)
        _append_at_level(session, level + 1, {s: (counts.get(s, 0), p) for s, p in full.items()})


def _rows(level: int, chunks: Sequence[tuple[int, int, PackedPoints]]) -> list[tuple[Any, ...]]:
    """The rows of chunks (series id, number, points), for `_INSERT` and `_REPLACE`."""
    if not chunks:
        return []
    counts = [len(points) for _, _, points in chunks]
    steps = np.frombuffer(b"".join(points.steps for _, _, points in chunks), "<i8")
    starts = [0, *accumulate(counts[:-1])]
    lowest, highest = (reduction.reduceat(steps, starts).tolist() for reduction in (np.minimum, np.maximum))
    return [
        (points.chunk(), low, high, count, series_id, level, number)
        for (series_id, number, points), low, high, count in zip(chunks, lowest, highest, counts, strict=True)
    ]


def _tails(session: Session, level: int, seqs: dict[int, int]) -> dict[int, PackedPoints]:
    by_number, tails = defaultdict[int, list[int]](list), dict[int, PackedPoints]()
    for series, number in seqs.items():
        by_number[number].append(series)
    for number, series_ids in by_number.items():
        rows = session.execute(_TAILS, {"series": series_ids, "at": level, "number": number}).all()
        tails |= {series: PackedPoints.of_chunk(blob) for series, blob in rows}
    return tails


def _counts_of(session: Session, level: int, series_ids: Collection[int]) -> dict[int, int]:
    rows = session.execute(_COUNTS, {"series": [*series_ids], "at": level}).all()
    return {series: int(total) for series, total in rows}


# The points that were added to a run's series since an earlier read.


@dataclass(frozen=True)
class Fresh:
    """New points of one series."""

    series: Series
    attempt: int
    points: Sequence[Point]
    life: int
    """The number of lives that the script had in the attempt before the one they are of."""
    is_begun: bool
    """Whether the points before these are known."""


def series_of(fence: int | InstrumentedAttribute[int]) -> ColumnElement[bool]:
    """Whether a series is of this attempt, those of the earlier lives of its script among them."""
    return or_(Series.fence == fence, Series.past_fence == fence)


def point_counts(store: Store, run_id: str) -> dict[int, int]:
    """The number of points of each of a run's series, by series id."""
    with store.read() as session:
        return {series.id: series.count for series, _ in _series(session, run_id)}


def points_since(store: Store, run_id: str, known_counts: Mapping[int, int]) -> tuple[list[Fresh], dict[int, int]]:
    """The points beyond the known counts, and the new count of every series, by series id."""
    with store.read() as session:
        series_of_run, fresh, lives = _series(session, run_id), list[Fresh](), Counter[tuple[int, str]]()
        for series, attempt in series_of_run:
            count, name = known_counts.get(series.id, 0), (attempt, public_name(series))
            if series.count > count:
                new_points = _points_from(session, series.id, count)
                fresh.append(Fresh(series, attempt, new_points, lives[name], is_begun=count > 0))
            lives[name] += 1
        return fresh, {series.id: series.count for series, _ in series_of_run}


def _series(session: Session, run_id: str) -> list[tuple[Series, int]]:
    query = (
        select(Series, Attempt.number)
        .join(Attempt, series_of(Attempt.fence))
        .where(Attempt.run_id == run_id)
        .order_by(Series.id)
    )
    return [(series, number) for series, number in session.execute(query)]


def _points_from(session: Session, series_id: int, position: int) -> list[Point]:
    first = position // CHUNK_POINTS
    chunks = (
        select(Chunk.points)
        .where(Chunk.series_id == series_id, Chunk.level == 0, Chunk.seq >= first)
        .order_by(Chunk.seq)
    )
    points = unpack(*session.scalars(chunks))
    return points[position - first * CHUNK_POINTS :]


# Every stored point of entire runs, a few chunks at a time, so that no reader holds the store or much memory.

CHUNKS_AT_ONCE = 64


@dataclass(frozen=True)
class StoredSeries:
    """One series of one attempt of a run."""

    id: int
    run_id: str
    run_name: str
    attempt: int
    name: str
    source: str
    by: str | None
    """The person whose run it is."""
    until: float
    """The lowest step of the later lives of the script, whose points replace those from there on."""


def stored_series(store: Store, run_ids: Collection[str]) -> list[StoredSeries]:
    """Return all series of the runs, in the order of the ids, then by attempt and name."""
    query = (
        select(Series, Attempt.number, Run.id, Run.name, Run.by)
        .join(Attempt, series_of(Attempt.fence))
        .join(Run, Run.id == Attempt.run_id)
        .where(Run.id.in_(run_ids))
        .order_by(Series.id.desc())
    )
    rows, until = list[StoredSeries](), dict[tuple[str, int, str], float]()
    with store.read() as session:
        for row, number, run_id, name, by in session.execute(query):
            key = run_id, number, public_name(row)
            end = until.get(key, math.inf)
            rows.append(StoredSeries(row.id, run_id, name, number, public_name(row), row.source, by, end))
            until[key] = min(end, row.first_step)
    place = {run_id: number for number, run_id in enumerate(run_ids)}
    return sorted(rows, key=lambda row: (place[row.run_id], row.attempt, row.name, row.id))


def pages_of_series(store: Store, series_id: int) -> Iterator[list[bytes]]:
    """Yield the packed chunks of all points of a series in their order, some at a time, each in a short read."""
    query = (
        select(Chunk.seq, Chunk.points)
        .where(Chunk.series_id == series_id, Chunk.level == 0)
        .order_by(Chunk.seq)
        .limit(CHUNKS_AT_ONCE)
    )
    last = -1
    while True:
        with store.read() as session:
            rows = session.execute(query.where(Chunk.seq > last)).all()
        if not rows:
            return
        last = rows[-1].seq
        yield [row.points for row in rows]


def counting_pages(store: Store, series: StoredSeries) -> Iterator[list[bytes]]:
    """Yield what `pages_of_series` yields without the points that a later life of the script replaced."""
    for blobs in pages_of_series(store, series.id):
        yield [_before(blob, series.until) for blob in blobs] if series.until < math.inf else blobs


def _before(blob: bytes, until: float) -> bytes:
    """Return a packed chunk's points below a step."""
    columns = np.frombuffer(blob, "<i8").reshape(3, -1)
    return columns[:, columns[0] < until].tobytes()
