"""Points of a series, packed in chunks, with downsampled levels kept while writing.

Rows per point are ten to fifteen times slower than packed chunks, so 256 points share a row. When a chunk is
full it is reduced, 16 points at a time, to their extremes, and these become points of the level above: every
level has about an eighth of the points of the one below, and a series of a million points opens by reading a
few thousand.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table, bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from db.metrics import columns
from db.models import Chunk
from domain.messages import Point

CHUNK_POINTS = 256
BUCKET_POINTS = 16
_CHUNKS = cast(Table, Chunk.__table__)
# Built once and run for all series at a time: points arrive many times a second.
_REPLACE = (
    update(_CHUNKS)
    .where(_CHUNKS.c.series_id == bindparam("of"), _CHUNKS.c.level == bindparam("at"))
    .where(_CHUNKS.c.seq == bindparam("number"))
)

_TAILS = (
    select(_CHUNKS.c.series_id, _CHUNKS.c.points)
    .where(_CHUNKS.c.series_id.in_(bindparam("series", expanding=True)), _CHUNKS.c.level == bindparam("at"))
    .where(_CHUNKS.c.seq == bindparam("number"))
)


def pack(points: Sequence[Point]) -> bytes:
    """All steps (int64), then all values, then all wall times (float64), little-endian."""
    columns = zip("qdd", zip(*points, strict=True), strict=True) if points else ()
    return b"".join(_little_endian(array(code, column)).tobytes() for code, column in columns)


def unpack(*blobs: bytes) -> list[Point]:
    """The inverse of `pack`, for chunks in their order."""
    steps, values, walls = array("q"), array("d"), array("d")
    for blob in blobs:
        third = len(blob) // 3
        for column, at in ((steps, 0), (values, third), (walls, 2 * third)):
            column.extend(_little_endian(array(column.typecode, blob[at : at + third])))
    return list(zip(steps, values, walls, strict=True))


def append(session: Session, new_points: Mapping[int, tuple[int, Sequence[Point]]]) -> None:
    """Add points to several series at once: {series id: (points it has already, new points)}."""
    _append_at_level(session, 0, new_points)


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


def _append_at_level(session: Session, level: int, new_points: Mapping[int, tuple[int, Sequence[Point]]]) -> None:
    tails = _tails(session, level, {s: n // CHUNK_POINTS for s, (n, _) in new_points.items() if n % CHUNK_POINTS})
    inserts: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    full: dict[int, list[Point]] = {}
    for series_id, (already, points) in new_points.items():
        seq, tail = already // CHUNK_POINTS, tails.get(series_id, [])
        joined = [*tail, *points]
        for start in range(0, len(joined), CHUNK_POINTS):
            part = joined[start : start + CHUNK_POINTS]
            row = _row(series_id, level, seq, part)
            (updates if tail and start == 0 else inserts).append(row)
            if len(part) == CHUNK_POINTS:
                full.setdefault(series_id, []).extend(_extremes(part, BUCKET_POINTS))
            seq += 1
    _write(session, inserts, updates)
    if full:
        counts = _counts_of(session, level + 1, full)
        _append_at_level(session, level + 1, {s: (counts.get(s, 0), p) for s, p in full.items()})


def _extremes(points: Sequence[Point], bucket: int) -> list[Point]:
    """The smallest and largest value and the first NaN or infinity of each bucket, in their original order."""
    return [points[at] for at in columns.extremes(_values(points), bucket)]


def _values(points: Sequence[Point]) -> NDArray[np.float64]:
    return np.fromiter(map(itemgetter(1), points), np.float64, len(points))


def _row(series_id: int, level: int, seq: int, points: Sequence[Point]) -> dict[str, Any]:
    steps = [*map(itemgetter(0), points)]
    return {
        "series_id": series_id,
        "level": level,
        "seq": seq,
        "count": len(points),
        "step_min": min(steps),
        "step_max": max(steps),
        "points": pack(points),
    }


def _write(session: Session, inserts: list[dict[str, Any]], updates: list[dict[str, Any]]) -> None:
    if inserts:
        session.execute(insert(_CHUNKS), inserts)
    if updates:
        session.execute(
            _REPLACE,
            [{**row, "of": row["series_id"], "at": row["level"], "number": row["seq"]} for row in updates],
        )


def _tails(session: Session, level: int, seqs: dict[int, int]) -> dict[int, list[Point]]:
    by_number, tails = defaultdict[int, list[int]](list), dict[int, list[Point]]()
    for series, number in seqs.items():
        by_number[number].append(series)
    for number, series_ids in by_number.items():
        rows = session.execute(_TAILS, {"series": series_ids, "at": level, "number": number})
        tails |= {series: unpack(blob) for series, blob in rows}
    return tails


def _counts_of(session: Session, level: int, series_ids: Iterable[int]) -> dict[int, int]:
    rows = session.execute(
        select(Chunk.series_id, func.sum(Chunk.count))
        .where(Chunk.series_id.in_(list(series_ids)), Chunk.level == level)
        .group_by(Chunk.series_id)
    )
    return {series: int(total) for series, total in rows}


def _little_endian(column: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        column.byteswap()
    return column
