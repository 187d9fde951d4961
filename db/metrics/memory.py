"""Read the memory of a run's nodes, ranks and devices from the samples of its hardware."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import and_, or_, select

from db.engine import Store
from db.lookups import latest_attempt
from db.metrics.points import CHUNK_POINTS, unpack
from db.models import Chunk, Node, Series, Task
from domain.messages import Point

RECENT_CHUNKS = 2
"""Chunks of 256 samples: the last twenty to forty minutes."""


@dataclass(frozen=True)
class MemorySeries:
    """Samples of one kind of memory."""

    node: str
    tag: str
    recent: list[Point]
    peak_bytes: float


def memory_series(store: Store, run_id: str, names: Iterable[str]) -> list[MemorySeries]:
    """Return the series of a run's latest attempt with these names, after `rankR/` for ranks. Raises NoSuchRun."""
    endings = [Series.tag == name for name in names]
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        rows = session.execute(
            select(Series, Node.name)
            .join(Task, and_(Task.fence == Series.fence, Task.node_rank == Series.node_rank))
            .join(Node, Node.id == Task.node_id)
            .where(Series.fence == attempt.fence, Series.source == "hardware")
            .where(or_(*endings, Series.tag.like("rank%memory_bytes")))
            .order_by(Series.node_rank, Series.tag)
        ).all()
        last = {row.id: (row.count - 1) // CHUNK_POINTS for row, _ in rows}
        chunks = session.execute(
            select(Chunk.series_id, Chunk.level, Chunk.seq, Chunk.points)
            .where(Chunk.series_id.in_(last), Chunk.level <= 1)
            .order_by(Chunk.series_id, Chunk.level, Chunk.seq)
        )
        blobs: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        for series_id, level, seq, blob in chunks:
            if level or seq > last[series_id] - RECENT_CHUNKS:  # level 1 has the extremes of what is older
                blobs[series_id, level].append(blob)
    return [_series(row, node, blobs[row.id, 0], blobs[row.id, 1]) for row, node in rows]


def _series(row: Series, node: str, recent: list[bytes], reduced: list[bytes]) -> MemorySeries:
    points = unpack(*recent)
    return MemorySeries(node, row.tag, points, max(value for _, value, _ in [*points, *unpack(*reduced)]))
