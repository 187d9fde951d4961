"""Every stored point of whole runs, a few chunks at a time, so that no reader holds the store or much memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sqlalchemy import select

from db.engine import Store
from db.metrics.lives import counting_chunks, goes_back
from db.metrics.series_names import public_name
from db.models import Attempt, Chunk, Run, Series

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


def stored_series(store: Store, run_ids: Collection[str]) -> list[StoredSeries]:
    """Return all series of the runs, in the order of the ids, then by attempt and name."""
    query = (
        select(Series, Attempt.number, Run.id, Run.name)
        .join(Attempt, Attempt.fence == Series.fence)
        .join(Run, Run.id == Attempt.run_id)
        .where(Run.id.in_(run_ids))
    )
    with store.read() as session:
        rows = [
            StoredSeries(row.id, run_id, name, number, public_name(row), row.source)
            for row, number, run_id, name in session.execute(query)
        ]
    place = {run_id: number for number, run_id in enumerate(run_ids)}
    return sorted(rows, key=lambda row: (place[row.run_id], row.attempt, row.name, row.id))


def pages(store: Store, series_id: int) -> Iterator[list[bytes]]:
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
    """Yield what `pages` yields without the points that a later life of the script replaced."""
    if not goes_back(series.source):
        yield from pages(store, series.id)
        return
    floors, read = _floors(store, series.id), 0
    for blobs in pages(store, series.id):
        read += len(blobs)
        yield counting_chunks(blobs, floors[read] if read < len(floors) else math.inf)


def _floors(store: Store, series_id: int) -> Sequence[int]:
    """The lowest step from each chunk on."""
    query = select(Chunk.step_min).where(Chunk.series_id == series_id, Chunk.level == 0)
    with store.read() as session:
        lowest = session.scalars(query.order_by(Chunk.seq.desc())).all()
    return [*accumulate(lowest, min)][::-1]
