"""What has come to a run's series since somebody last looked."""

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
    """How many points each of a run's series has."""
    with store.read() as session:
        return {series.id: series.count for series, _ in _series(session, run_id)}


def points_since(store: Store, run_id: str, known: Mapping[int, int]) -> tuple[list[Fresh], dict[int, int]]:
    """The points that are not among those known, and how many there are now."""
    with store.read() as session:
        found = _series(session, run_id)
        fresh = [
            Fresh(series, attempt, _points_from(session, series.id, known.get(series.id, 0)))
            for series, attempt in found
            if series.count > known.get(series.id, 0)
        ]
        return fresh, {series.id: series.count for series, _ in found}


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
