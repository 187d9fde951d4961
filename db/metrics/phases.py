"""Read how a run's ranks divide the time of their steps, from the totals that the probe records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from sqlalchemy import ColumnElement, and_, func, select, tuple_
from sqlalchemy.orm import Session

from db.engine import Store
from db.lookups import attempt_spec, latest_attempt
from db.metrics.points import CHUNK_POINTS, unpack
from db.models import Chunk, Node, Series, Task
from domain.messages import Point
from domain.performance.phases import BESIDES, PHASES, PhaseTotals, mean_of_ranks
from domain.scheduling import resizing

RECENT_CHUNKS = 2
"""Chunks of 256 records that are read where no first step is asked for: the last twenty to forty minutes."""
_TAG = re.compile(rf"rank(\d+)/phases/({'|'.join((*PHASES, *BESIDES))})")


def phase_totals(store: Store, run_id: str, since_step: int | None = None) -> tuple[list[PhaseTotals], int]:
    """Return the recent totals of each rank of a run's latest attempt, and its world size. Raises NoSuchRun.

    `since_step`: all totals from this step on instead of the recent ones."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        series = _series(session, attempt.fence)
        points = _points(session, series, since_step)
        ranks: dict[int, dict[str, list[Point]]] = defaultdict(dict)
        nodes: dict[int, str] = {}
        for row, node in series:
            if (match := _TAG.fullmatch(row.tag)) and points.get(row.id):
                ranks[int(match[1])][match[2]] = points[row.id]
                nodes[int(match[1])] = node
        world_size = resizing.effective(attempt_spec(session, attempt), attempt.changes).world_size
    return [_totals(rank, nodes[rank], ranks[rank]) for rank in sorted(ranks)], world_size


def mean_step(store: Store, run_id: str) -> dict[str, float]:
    """Return the mean seconds of a step and of its phases over all ranks; empty without a step. Raises NoSuchRun."""
    return mean_of_ranks(phase_totals(store, run_id)[0])


def phase_counts(store: Store, fences: Iterable[int]) -> dict[int, int]:
    """Return how many phase points each of these attempts has; attempts without any are left out."""
    query = (
        select(Series.fence, func.sum(Series.count))
        .where(Series.fence.in_([*fences]), Series.source == "probe", Series.tag.contains("/phases/"))
        .group_by(Series.fence)
    )
    with store.read() as session:
        return {fence: int(count) for fence, count in session.execute(query)}


def _series(session: Session, fence: int) -> list[tuple[Series, str]]:
    rows = session.execute(
        select(Series, Node.name)
        .join(Task, and_(Task.fence == Series.fence, Task.node_rank == Series.node_rank))
        .join(Node, Node.id == Task.node_id)
        .where(Series.fence == fence, Series.source == "probe", Series.tag.contains("/phases/"))
    )
    return [(row, node) for row, node in rows]


def _points(
    session: Session, series: Iterable[tuple[Series, str]], since_step: int | None
) -> Mapping[int, list[Point]]:
    """Return series id -> points, read at once: a run of many ranks has thousands of series."""
    where: ColumnElement[bool] = Chunk.series_id.in_([row.id for row, _ in series]) & (
        Chunk.step_max >= (since_step or 0)
    )
    if since_step is None:
        where = tuple_(Chunk.series_id, Chunk.seq).in_([key for row, _ in series for key in _recent(row)])
    blobs: dict[int, list[bytes]] = defaultdict(list)
    query = select(Chunk.series_id, Chunk.points).where(Chunk.level == 0, where)
    for series_id, blob in session.execute(query.order_by(Chunk.series_id, Chunk.seq)):
        blobs[series_id].append(blob)
    return {
        series_id: [point for point in unpack(*pieces) if since_step is None or point[0] >= since_step]
        for series_id, pieces in blobs.items()
    }


def _recent(series: Series) -> list[tuple[int, int]]:
    """Return the keys of a series' last chunks."""
    last = (series.count - 1) // CHUNK_POINTS
    return [(series.id, seq) for seq in range(max(0, last - RECENT_CHUNKS + 1), last + 1)]


def _totals(rank: int, node: str, series: Mapping[str, list[Point]]) -> PhaseTotals:
    """Join the series by step; one that began later was zero before."""
    newest = {name: _since_restart(points) for name, points in series.items()}
    walls = {step: wall for points in newest.values() for step, _, wall in points}
    steps = sorted(walls)
    values = {name: {step: value for step, value, _ in points} for name, points in newest.items()}
    seconds = {name: _filled(steps, totals) for name, totals in values.items()}
    return PhaseTotals(rank, node, steps, [walls[step] for step in steps], seconds)


def _since_restart(points: list[Point]) -> list[Point]:
    """Return the points of the rank's newest process: one that torchrun restarted begins again at its first step."""
    for at in range(len(points) - 1, 0, -1):
        if points[at][0] <= points[at - 1][0]:
            return points[at:]
    return points


def _filled(steps: list[int], totals: Mapping[int, float]) -> list[float]:
    filled: list[float] = []
    for step in steps:
        filled.append(totals.get(step, filled[-1] if filled else 0.0))
    return filled
