"""Read what a run's performance is judged by: phases of its steps, memory, arithmetic, gradient reduction, hardware."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuchNode
from db.lookups import attempt_spec, latest_attempt
from db.metrics.points import CHUNK_POINTS, unpack
from db.metrics.series_names import public_name
from db.models import Attempt, Chunk, Node, PairPass, Series, Task
from domain.messages import Point
from domain.performance.efficiency import FIGURES, PARAMETERS, TAG, TOKENS, Arithmetic, Reduction
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


# Read the memory of a run's nodes, ranks and devices from the samples of its hardware.

MEMORY_CHUNKS = 2
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
            if level or seq > last[series_id] - MEMORY_CHUNKS:  # level 1 has the extremes of what is older
                blobs[series_id, level].append(blob)
    return [_memory_series(row, node, blobs[row.id, 0], blobs[row.id, 1]) for row, node in rows]


def _memory_series(row: Series, node: str, recent: list[bytes], reduced: list[bytes]) -> MemorySeries:
    points = unpack(*recent)
    return MemorySeries(node, row.tag, points, max(value for _, value, _ in [*points, *unpack(*reduced)]))


# Read what a run's efficiency is judged by: its arithmetic, and how it averages its gradients.


def arithmetic_of(store: Store, run_id: str) -> Arithmetic | None:
    """Return the size, the tokens per second and the device of the latest attempt; None without one of the first two.

    Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        query = select(Series.tag, Series.last_value).where(
            Series.fence == attempt.fence, Series.source == "probe", Series.tag.in_((PARAMETERS, TOKENS))
        )
        values = {tag: value for tag, value in session.execute(query) if value}
        if len(values) < 2:
            return None
        nodes = select(Node.devices).join(Task, Task.node_id == Node.id).where(Task.fence == attempt.fence)
        devices = [device for of_node in session.scalars(nodes) for device in of_node]
        names = {device["name"] if device["kind"] == "cuda" else "" for device in devices}
        ranks = resizing.effective(attempt_spec(session, attempt), attempt.changes).world_size
    return Arithmetic(values[PARAMETERS], values[TOKENS], ranks, names.pop() if len(names) == 1 else "")


def reduction_of(store: Store, run_id: str) -> tuple[Reduction, int, float | None] | None:
    """Return the latest attempt's gradient reduction, its world size, and the bytes per second of its slowest link.

    None where DistributedDataParallel was not seen. Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        tags = [TAG + name for name in FIGURES]
        query = select(Series.tag, Series.last_value).where(
            Series.fence == attempt.fence, Series.source == "probe", Series.tag.in_(tags)
        )
        figures = {tag.removeprefix(TAG): value for tag, value in session.execute(query) if value is not None}
        if "buckets" not in figures:
            return None
        world_size = resizing.effective(attempt_spec(session, attempt), attempt.changes).world_size
        return _reduction(figures), world_size, _slowest_link(session, attempt.fence)


def _reduction(figures: dict[str, float]) -> Reduction:
    facts = {
        "buckets": int(figures.pop("buckets")),
        "rebuilt": bool(figures.pop("rebuilt")),
        "static_graph": bool(figures.pop("static_graph")),
    }
    return Reduction(**facts, **figures)  # type: ignore[arg-type]


def _slowest_link(session: Session, fence: int) -> float | None:
    nodes = select(Task.node_id).where(Task.fence == fence)
    slowest = select(func.min(PairPass.bytes_per_s))
    return session.scalar(slowest.where(PairPass.node_a.in_(nodes), PairPass.node_b.in_(nodes)))


# The hardware that a run used: device-hours, the energy its devices measured, and the names of its samples.

HARDWARE_SOURCE = "hardware"
ENERGY = re.compile(r"gpu\d+/energy_j")


@dataclass(frozen=True)
class Usage:
    """Over all attempts of a run."""

    device_hours: float
    energy_j: float | None
    """None where no device has a counter of its energy."""


def usage(store: Store, run_id: str, now: float) -> Usage:
    """Device-hours from the placement of each attempt to its end, and measured energy. Raises NoSuchRun."""
    with store.read() as session:
        latest_attempt(session, run_id)
        query = (
            select(Attempt, Task.devices)
            .join(Task, Task.fence == Attempt.fence)
            .where(Attempt.run_id == run_id, Attempt.placed_at.is_not(None))
        )
        device_s = sum(
            len(devices) * max(0.0, (attempt.ended_at or now) - (attempt.placed_at or now))
            for attempt, devices in session.execute(query)
        )
        return Usage(device_s / 3600, _energy_j(session, run_id))


def hardware_names(store: Store, run_id: str, node: str | None) -> list[str]:
    """Names of the hardware series, of all nodes or of one by its name or rank. Raises NoSuchRun, NoSuchNode."""
    with store.read() as session:
        latest_attempt(session, run_id)
        query = (
            select(Series)
            .join(Attempt, Attempt.fence == Series.fence)
            .where(Attempt.run_id == run_id, Series.source == HARDWARE_SOURCE)
        )
        if node is not None:
            query = query.where(_is_on(session, run_id, node))
        return sorted({public_name(row) for row in session.scalars(query)})


def _is_on(session: Session, run_id: str, node: str) -> ColumnElement[bool]:
    """Whether a series is of a node; one name may stand for another node rank in each attempt. Raises NoSuchNode."""
    tasks = (
        select(Task.fence, Task.node_rank)
        .join(Attempt, Attempt.fence == Task.fence)
        .join(Node, Node.id == Task.node_id)
        .where(Attempt.run_id == run_id)
    )
    is_node = Task.node_rank == int(node) if node.isdecimal() else Node.name == node
    places = session.execute(tasks.where(is_node)).all()
    if not places:
        raise NoSuchNode(f"Run {run_id} has no node {node!r}: name one, or give its rank from 0.")
    return or_(*((Series.fence == fence) & (Series.node_rank == rank) for fence, rank in places))


def _energy_j(session: Session, run_id: str) -> float | None:
    """The growth of all energy counters while the run was sampled."""
    query = (
        select(Series)
        .join(Attempt, Attempt.fence == Series.fence)
        .where(Attempt.run_id == run_id, Series.source == HARDWARE_SOURCE)
    )
    counters = [row for row in session.scalars(query) if ENERGY.fullmatch(row.tag)]
    grown = [row.last_value - _first_value(session, row.id) for row in counters]
    return sum(max(0.0, growth) for growth in grown) if grown else None


def _first_value(session: Session, series_id: int) -> float:
    first = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0, Chunk.seq == 0)
    return unpack(session.scalars(first).one())[0][1]
