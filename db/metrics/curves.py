"""Read the curves of one run or many at once, each by a few packed chunks of the level that is fine enough."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from sqlalchemy import ScalarSelect, Select, bindparam, func, or_, select
from sqlalchemy.orm import Session, aliased

from db.engine import Store
from db.metrics import points
from db.metrics.columns import (
    Columns,
    as_points,
    thinned_each,
    unpacked,
    within,
)
from db.metrics.points import CHUNK_POINTS, series_of
from db.metrics.series_names import EPOCH_NAMES, MAIN_LOSS, name_of, public_name
from db.models import Attempt, Chunk, Series
from domain.messages import SCRIPT_KINDS, Point
from domain.views import Segment, SeriesView

MOST_LEVELS = 10
"""More than a series of 10 billion points has."""
READ_PER_POINT = 8
"""Points read for each that is returned: that many make a level above."""
_FIELDS: tuple[Any, ...] = (
    Attempt.run_id, Attempt.number, Series.id, Series.node_rank, Series.source, Series.tag, Series.count,
    Series.first_step, Series.last_step, Series.last_value, Series.lowest, Series.highest, Series.not_finite_since,
)  # fmt: skip


_LOSSES = (
    select(*_FIELDS)
    .join(Attempt, Attempt.fence == Series.fence)
    .where(Attempt.run_id.in_(bindparam("run_ids", expanding=True)), Series.source.in_(SCRIPT_KINDS))
    .where(Series.node_rank == 0, or_(Series.tag.in_(MAIN_LOSS), Series.tag.ilike("%loss")))
    .order_by(Attempt.run_id, Attempt.number, Series.id)
)


class Extent(Protocol):
    """What is known of a series without reading its points."""

    @property
    def id(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def first_step(self) -> int: ...
    @property
    def last_step(self) -> int: ...


@dataclass(frozen=True)
class SeriesRow:
    """A series of one attempt, without its points."""

    run_id: str
    attempt: int
    id: int
    node_rank: int
    source: str
    tag: str
    count: int
    first_step: int
    last_step: int
    last_value: float
    lowest: float | None
    highest: float | None
    """Of the finite values; None without any."""
    not_finite_since: int | None

    @property
    def name(self) -> str:
        """How people name the series."""
        return name_of(self.node_rank, self.source, self.tag)


@dataclass(frozen=True)
class StepRange:
    """Steps, both ends included; None for no limit."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class RunCurve:
    """A series of one attempt, until the first step of a newer one; lives of its script are joined."""

    run_id: str
    name: str
    source: str
    attempt: int
    not_finite_since: int | None
    columns: Columns


def sources_of_runs(store: Store, run_ids: Collection[str]) -> dict[str, dict[str, str]]:
    """The source of each series by name, for each run: {run id: {"train/loss": "events"}}."""
    query = select(Attempt.run_id, Series.node_rank, Series.source, Series.tag)
    query = query.join(Attempt, Attempt.fence == Series.fence).where(Attempt.run_id.in_(run_ids)).distinct()
    by_run: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    with store.read() as session:
        for row in session.execute(query):
            by_run[row.run_id][name_of(row.node_rank, row.source, row.tag)] = row.source
    return by_run


def curves_of_runs(
    store: Store,
    run_ids: Collection[str],
    names: Collection[str],
    max_points: int,
    window: StepRange | None = None,
) -> list[RunCurve]:
    """The named series of the runs, at most `max_points` an attempt, by their extremes; older attempts first."""
    window = window or StepRange()
    with store.read() as session:
        rows = [row for row in series_rows(session, run_ids, names=names) if row.name in names]
        ends = ends_of(rows)
        read = read_columns(session, rows, READ_PER_POINT * max_points, window)
    visible = dict[tuple[str, str, int], list[Columns]]()
    for row in rows:
        own = within(read[row.id], window.first, _last_step(ends[row.id], window))
        visible.setdefault(_curve_key(row), []).append(own)
    chosen = thinned_each([np.concatenate(lives, axis=1) for lives in visible.values()], max_points)
    newest = {_curve_key(row): row for row in rows}
    return [_curve(newest[key], own, ends[newest[key].id]) for key, own in zip(visible, chosen, strict=True)]


def _curve_key(row: SeriesRow) -> tuple[str, str, int]:
    return row.run_id, row.name, row.attempt


def series_rows(
    session: Session,
    run_ids: Collection[str],
    names: Iterable[str] | None = None,
    sources: Collection[str] | None = None,
) -> list[SeriesRow]:
    """The series of the runs, older attempts and lives first; those with other names may be among them."""
    query = select(*_FIELDS).where(Attempt.run_id.in_(run_ids))
    if names is not None:
        query = query.where(Series.tag.in_({tag for name in names for tag in _possible_tags(name)}))
    if sources is not None:
        query = query.where(Series.source.in_(sources))
    # Two queries, each with its index: one that asks for either column reads all series.
    joined = [query.join(Attempt, Attempt.fence == fence) for fence in (Series.fence, Series.past_fence)]
    rows = [SeriesRow(*row) for one in joined for row in session.execute(one)]
    return sorted(rows, key=lambda row: (row.run_id, row.attempt, row.id))


def loss_rows(session: Session, run_ids: Collection[str]) -> list[SeriesRow]:
    """Node rank 0's series of the runs among which their losses are (`series_names.main_loss`)."""
    return [SeriesRow(*row) for row in session.connection().execute(_LOSSES, {"run_ids": run_ids}).all()]


def ends_of(rows: Sequence[SeriesRow]) -> dict[int, int | None]:
    """The last step at which each row's points count: those of a newer attempt, or a later life of its script, replace
    them from their first step on; by series id."""
    ends: dict[int, int | None] = {}
    first: dict[tuple[str, str], int] = {}
    for row in reversed(rows):
        key = (row.run_id, row.name)
        ends[row.id] = first[key] - 1 if key in first else None
        first[key] = min(row.first_step, first.get(key, row.first_step))
    return ends


def read_columns(
    session: Session,
    rows: Sequence[Extent],
    budget: int,
    window: StepRange | None = None,
) -> dict[int, Columns]:
    """The points of each series from its finest level of at most `budget` points in the window; by series id."""
    window = window or StepRange()
    tops = _last_chunks(session, [row.id for row in rows if row.count > budget])
    levels = {row.id: _level(row, tops.get(row.id, []), budget, window) for row in rows}
    blobs = _chunks(session, levels, window)
    for series, blob in _unreduced(session, levels):
        blobs[series].append(blob)
    return {row.id: unpacked(blobs[row.id]) for row in rows}


def thinned_points(session: Session, rows: Sequence[Extent], most: int, window: StepRange) -> dict[int, list[Point]]:
    """At most `most` points of each series in the window, by their extremes; by series id."""
    read = thinned_columns(session, rows, most, window)
    return {series: as_points(own) for series, own in read.items()}


def thinned_columns(session: Session, rows: Sequence[Extent], most: int, window: StepRange) -> dict[int, Columns]:
    """At most `most` points of each series in the window, as columns; by series id."""
    read = read_columns(session, rows, READ_PER_POINT * most, window)
    chosen = thinned_each([within(own, window.first, window.last) for own in read.values()], most)
    return dict(zip(read, chosen, strict=True))


def _last_step(end: int | None, window: StepRange) -> int | None:
    return min((limit for limit in (end, window.last) if limit is not None), default=None)


def _curve(row: SeriesRow, columns: Columns, end: int | None) -> RunCurve:
    not_finite_since = row.not_finite_since if end is None else None
    return RunCurve(row.run_id, row.name, row.source, row.attempt, not_finite_since, columns)


def _possible_tags(name: str) -> set[str]:
    """The tags that a series of this name may have: the name without a node's rank and without a source."""
    bare = re.sub(r"^node\d+/", "", name)
    return {name, bare} | {text.partition("/")[2] for text in (name, bare) if "/" in text}


def _last_chunks(session: Session, series_ids: Sequence[int]) -> dict[int, list[int]]:
    """The number of the last chunk at each level of each series: looked up, not counted."""
    rows = session.execute(_every_last_chunk(), {"series": series_ids}) if series_ids else ()
    return {row[0]: [seq for seq in row[1:] if seq is not None] for row in rows}


@cache
def _every_last_chunk() -> Select[*tuple[Any, ...]]:
    last: list[Any] = [_last_chunk(level) for level in range(MOST_LEVELS)]
    return select(Series.id, *last).where(Series.id.in_(bindparam("series", expanding=True)))


def _level(row: Extent, tops: Sequence[int], budget: int, window: StepRange) -> int:
    """The finest level that has at most `budget` points in the window; a level is counted in full chunks."""
    first = max(row.first_step, row.first_step if window.first is None else window.first)
    last = min(row.last_step, row.last_step if window.last is None else window.last)
    share = min(1.0, max(0, last - first + 1) / max(1, row.last_step - row.first_step + 1))
    sizes = [min((seq + 1) * CHUNK_POINTS, row.count) * share for seq in tops]
    return next((level for level, size in enumerate(sizes) if size <= budget), max(0, len(sizes) - 1))


def _chunks(session: Session, levels: Mapping[int, int], window: StepRange) -> dict[int, list[bytes]]:
    by_level: dict[int, list[int]] = defaultdict(list)
    for series, level in levels.items():
        by_level[level].append(series)
    blobs: dict[int, list[bytes]] = defaultdict(list)
    for level, series_ids in by_level.items():
        chosen = {"series": series_ids, "level": level, "first": window.first, "last": window.last}
        query = _chunks_within(window.first is not None, window.last is not None)
        for series, blob in session.connection().execute(query, chosen).all():
            blobs[series].append(blob)
    return blobs


@cache
def _chunks_within(has_first: bool, has_last: bool) -> Select[int, bytes]:
    """The chunks of a level that may have steps from `first` to `last`; made once."""
    query = select(Chunk.series_id, Chunk.points).where(
        Chunk.series_id.in_(bindparam("series", expanding=True)), Chunk.level == bindparam("level")
    )
    if has_first:
        query = query.where(Chunk.step_max >= bindparam("first"))
    if has_last:
        query = query.where(Chunk.step_min <= bindparam("last"))
    return query.order_by(Chunk.series_id, Chunk.seq)


def _unreduced(session: Session, levels: Mapping[int, int]) -> Iterator[tuple[int, bytes]]:
    """Yield the last chunks of lower levels that are not full, so not part of a level above; higher levels first."""
    for level in range(max(levels.values(), default=0) - 1, -1, -1):
        above = [series for series, own in levels.items() if own > level]
        # Joined to the series, the last chunk is looked up; without, SQLite reads all chunks.
        query = (
            select(Chunk.series_id, Chunk.points)
            .join(Series, Series.id == Chunk.series_id)
            .where(Series.id.in_(above), Chunk.level == level, Chunk.count < CHUNK_POINTS)
            .where(Chunk.seq == _last_chunk(level))
        )
        yield from session.execute(query)


@cache
def _last_chunk(level: int) -> ScalarSelect[int]:
    """The number of a series' last chunk of a level, looked up in its key; made once, which takes 2 ms."""
    chunk = aliased(Chunk)
    last = select(func.max(chunk.seq)).where(chunk.series_id == Series.id, chunk.level == level)
    return last.correlate(Series).scalar_subquery()


# Reading curves: one series over all attempts of a run, cut where a newer attempt took over.


def series_names(store: Store, run_id: str, source: str = "events") -> list[str]:
    """Names of a run's series; source is events, printed, probe or all."""
    with store.read() as session:
        return sorted({public_name(row) for row, _ in _rows(session, run_id, source)})


def series_sources(store: Store, run_id: str) -> dict[str, str]:
    """The source of each of a run's series, by name: events, printed or probe."""
    with store.read() as session:
        return {public_name(row): row.source for row, _ in _rows(session, run_id, "all")}


def series(
    store: Store,
    run_id: str,
    names: Collection[str] | None = None,
    source: str = "events",
    attempt: int | None = None,
    since_step: int | None = None,
    max_points: int | None = None,
    whole: bool = False,
    until_step: int | None = None,
) -> dict[str, SeriesView]:
    """Curves by name, between two steps.

    From its first step on a newer attempt's points replace the older ones, as do those of a later life of the script
    in one attempt; `whole` keeps the older ones as well, `attempt` shows one attempt alone."""
    with store.read() as session:
        by_name: dict[str, list[tuple[Series, int]]] = {}
        for row, number in _rows(session, run_id, source):
            if (names is None or public_name(row) in names) and attempt in (None, number):
                by_name.setdefault(public_name(row), []).append((row, number))
        series_rows = [row for rows in by_name.values() for row, _ in rows]
        read = _read(session, series_rows, StepRange(since_step, until_step), max_points)
    return {name: _joined_curve(name, rows, read, whole) for name, rows in sorted(by_name.items())}


def of_metric(store: Store, run_id: str, metric: str, most: int | None = None) -> list[Point]:
    """Points of a metric over all attempts: from the event files, else from what the run printed."""
    named = series(store, run_id, (metric, f"printed/{metric}"), "all", max_points=most)
    shown = named.get(metric) or named.get(f"printed/{metric}")
    return shown.points if shown else []


def runs_by_epoch(store: Store, run_ids: Collection[str], metric: str) -> set[str]:
    """The runs whose points of a metric, as `of_metric` has them, are at epochs, not at steps.

    Their places are full epochs that the run has reached, and it has made more steps; or it counts nothing else."""
    with store.read() as session:
        by_run: dict[str, dict[str, SeriesRow]] = {}
        for row in series_rows(session, run_ids):
            by_run.setdefault(row.run_id, {})[row.name] = row
    names = (metric, f"printed/{metric}")
    shown = {run: next((rows[name] for name in names if name in rows), None) for run, rows in by_run.items()}
    return {run for run, rows in by_run.items() if _is_by_epoch(rows, shown[run])}


def _is_by_epoch(rows: Mapping[str, SeriesRow], metric: SeriesRow | None) -> bool:
    epochs = next((rows[name] for name in EPOCH_NAMES if name in rows), None)
    if metric is None or epochs is None or metric.last_step > epochs.last_value + 1:
        return False
    most_steps = max(row.last_step for row in rows.values() if row.source != "hardware")
    return most_steps > metric.last_step or epochs.last_step == metric.last_step


def _rows(session: Session, run_id: str, source: str) -> Sequence[tuple[Series, int]]:
    query = (
        select(Series, Attempt.number)
        .join(Attempt, series_of(Attempt.fence))
        .where(Attempt.run_id == run_id)
        .order_by(Attempt.number, Series.id)
    )
    if source != "all":
        query = query.where(Series.source == source)
    return [(row, number) for row, number in session.execute(query)]


def _read(
    session: Session, rows: Sequence[Series], window: StepRange, max_points: int | None
) -> dict[int, list[Point]]:
    if max_points is not None:
        return thinned_points(session, rows, max_points, window)
    return {row.id: points.read(session, row.id, window.first, window.last) for row in rows}


def _joined_curve(
    name: str, rows: Sequence[tuple[Series, int]], read: Mapping[int, list[Point]], whole: bool
) -> SeriesView:
    segments: list[Segment] = []
    until = math.inf
    for row, number in reversed(rows):
        segment_points = read[row.id] if whole else [p for p in read[row.id] if p[0] < until]
        segments.insert(0, Segment(number, segment_points, row.count, row.repeats))
        until = min(until, row.first_step)
    last = rows[-1][0]
    return SeriesView(name, last.source, sum(r.count for r, _ in rows), last.not_finite_since, segments)


def to_json_number(value: float) -> float | str:
    """JSON has no NaN and no infinities: they travel as strings."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def to_json_points(points: Iterable[Point]) -> list[list[float | str]]:
    """[[step, value, wall time], …] as the API and the live channel send them."""
    return [[step, to_json_number(value), wall] for step, value, wall in points]
