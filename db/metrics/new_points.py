"""The points that were added to a run's series since an earlier read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics.points import CHUNK_POINTS, unpack
from db.models import Attempt, Chunk, Series
from domain.messages import Point


@dataclass(frozen=True)
class Fresh:
    """New points of one series."""

    series: Series
    attempt: int
    points: Sequence[Point]


def counts(store: Store, run_id: str) -> dict[int, int]:
    """The number of points of each of a run's series, by series id."""
    with store.read() as session:
        return {series.id: series.count for series, _ in _series(session, run_id)}


def points_since(store: Store, run_id: str, known_counts: Mapping[int, int]) -> tuple[list[Fresh], dict[int, int]]:
    """The points beyond the known counts, and the new count of every series, by series id."""
    with store.read() as session:
        series_of_run = _series(session, run_id)
        fresh = [
            Fresh(series, attempt, _points_from(session, series.id, known_counts.get(series.id, 0)))
            for series, attempt in series_of_run
            if series.count > known_counts.get(series.id, 0)
        ]
        return fresh, {series.id: series.count for series, _ in series_of_run}


def _series(session: Session, run_id: str) -> list[tuple[Series, int]]:
    query = (
        select(Series, Attempt.number)
        .join(Attempt, Attempt.fence == Series.fence)
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
