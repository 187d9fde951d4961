"""Append points to the series of attempts, and to what a table needs of them without opening them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from sqlalchemy import Row, Table, bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from db.lookups import AttemptKey, add_history
from db.metrics import points
from db.metrics.columns import goes_back, steps_back
from db.metrics.curves import read_columns
from db.models import Attempt, HistoryEntry, Series
from db.postgres import NUL, NUL_SHOWN
from db.statements import Prepared
from domain.messages import MAX_SERIES, Point, PointKind
from domain.points import NUMBER_BYTES, PackedPoints
from domain.text import formats

EXTREMES_OF = 16_384
"""Points of which a series' extremes are taken anew when its script goes back; of more, those of buckets."""
MAX_LIVES_NOTED = 20
WENT_BACK = "the script started again: "
# Statements of tables, not of classes, built once: points arrive many times a second.
_SERIES = cast(Table, Series.__table__)
_OF_TAGS = select(_SERIES).where(
    _SERIES.c.fence.in_(bindparam("fences", expanding=True)), _SERIES.c.node_rank == bindparam("node_rank"),
    _SERIES.c.source.in_(bindparam("sources", expanding=True)),
    _SERIES.c.tag.in_(bindparam("tags", expanding=True)),
)  # fmt: skip
_COUNT = [*_SERIES.c.keys()].index("count")
"""A row has a method of that name."""
_CHANGE_SERIES = Prepared(
    update(_SERIES).where(_SERIES.c.id == bindparam("of")),
    "of", "count", "first_step", "last_step", "last_wall", "last_value", "last_number", "lowest", "highest",
    "finite_sum", "finite_count", "not_finite_since",
)  # fmt: skip


class SeriesKey(NamedTuple):
    """The name of a series in the store."""

    fence: int
    node_rank: int
    source: str
    tag: str


SeriesOf = tuple[Attempt | AttemptKey, int, PointKind, Mapping[str, Iterable[Point]]]
"""An attempt, a node rank, where the points come from, and the points by tag."""


def store_series(
    session: Session,
    attempt: Attempt | AttemptKey,
    node_rank: int,
    source: PointKind,
    series: Mapping[str, Iterable[Point]],
) -> None:
    """Append points to the series of an attempt, and to what its figures are read from."""
    store_batches(session, [(attempt, node_rank, source, series)])


def store_batches(session: Session, batches: Sequence[SeriesOf]) -> None:
    """Append points to series of several attempts, in this order, by a few statements for all."""
    arrived, attempts = dict[SeriesKey, PackedPoints](), dict[int, Attempt | AttemptKey]()
    for attempt, node_rank, source, series in batches:
        attempts[attempt.fence] = attempt
        for tag, own in series.items():
            key, pts = SeriesKey(attempt.fence, node_rank, source, tag.replace(NUL, NUL_SHOWN)), PackedPoints.of(own)
            if pts:
                arrived[key] = arrived[key].followed_by(pts) if key in arrived else pts
    rows = _series_rows(session, arrived)
    if fresh := [key for key in arrived if key not in rows]:
        for fence, kind in {(key.fence, key.source): None for key in fresh}:
            names = [key for key in fresh if (key.fence, key.source) == (fence, kind)]
            _add_series(session, attempts[fence], kind, arrived, names)
        rows |= _series_rows(session, fresh)
    stored = {key: pts for key, pts in arrived.items() if key in rows}
    points.append(session, {rows[key].id: (rows[key][_COUNT], pts) for key, pts in stored.items()})
    if stored:
        figures = dict(zip(stored, _figures([*stored.values()]), strict=True))
        lives = {key: _lives(rows[key], pts, figures[key]) for key, pts in stored.items()}
        summaries = [_summary(rows[key], pts, figures[key], lives[key][1]) for key, pts in stored.items()]
        _CHANGE_SERIES.run(session, summaries)
        if backs := {key: own[0] for key, (own, _) in lives.items() if own}:
            _begin_lives(session, attempts, {key: (rows[key], stored[key]) for key in backs}, backs)


def _begin_lives(
    session: Session,
    attempts: Mapping[int, Attempt | AttemptKey],
    arrived: Mapping[SeriesKey, tuple[Row[Any], PackedPoints]],
    backs: Mapping[SeriesKey, tuple[int, int]],
) -> None:
    """Where the script went back to an earlier step, say so once, and take the extremes of what counts from then on."""
    ids = [arrived[key][0].id for key in backs]
    for series in session.scalars(select(Series).where(Series.id.in_(ids)).execution_options(populate_existing=True)):
        _take_extremes(session, series)
    for fence in dict.fromkeys(key.fence for key in backs):
        key = max((key for key in backs if key.fence == fence), key=lambda key: arrived[key][0][_COUNT])
        wall = next(wall for step, _, wall in arrived[key][1] if step == backs[key][1])
        _note_life(session, attempts[fence], key.tag, backs[key], wall)


def _take_extremes(session: Session, series: Series) -> None:
    values = read_columns(session, [series], EXTREMES_OF)[series.id][1]
    finite = values[np.isfinite(values)]
    if finite.size:
        series.lowest, series.highest = float(finite.min()), float(finite.max())


def _note_life(session: Session, attempt: Attempt | AttemptKey, tag: str, back: tuple[int, int], wall: float) -> None:
    """Add a history line; further series of the same life add none, nor does a script that counts anew every epoch."""
    of_attempt = (HistoryEntry.run_id == attempt.run_id, HistoryEntry.attempt == attempt.number)
    query = select(HistoryEntry.text).where(*of_attempt, HistoryEntry.text.startswith(WENT_BACK, autoescape=True))
    lines = session.scalars(query.order_by(HistoryEntry.id)).all()
    if len(lines) < MAX_LIVES_NOTED and (not lines or lines[0].startswith(f"{WENT_BACK}{tag} ")):
        moved = f"{tag} went back from step {back[0]} to step {back[1]}"
        text = f"{WENT_BACK}{moved}, and its newer points count from there on"
        add_history(session, attempt.run_id, attempt.number, wall, text)


def _add_series(
    session: Session,
    attempt: Attempt | AttemptKey,
    source: str,
    arrived: Mapping[SeriesKey, PackedPoints],
    fresh: Sequence[SeriesKey],
) -> None:
    """Add rows for new names; those of one kind of source never take the place of another's."""
    of_source = select(func.count()).where(Series.fence == attempt.fence, Series.source == source)
    existing = session.scalar(of_source) or 0
    available = max(0, MAX_SERIES - existing)
    if len(fresh) > available > 0:
        text = f"more than {MAX_SERIES} series: further names are not stored"
        add_history(session, attempt.run_id, attempt.number, next(iter(arrived[fresh[0]]))[2], text)
    if rows := [_empty_series(key, next(iter(arrived[key]))) for key in fresh[:available]]:
        session.execute(insert(Series), rows)


def _series_rows(session: Session, keys: Iterable[SeriesKey]) -> dict[SeriesKey, Row[Any]]:
    """The rows of series that exist: one statement for all parts with the same names."""
    names = defaultdict[tuple[int, int], set[tuple[str, str]]](set)
    for fence, node_rank, source, tag in keys:
        names[fence, node_rank].add((source, tag))
    alike = defaultdict[tuple[int, frozenset[tuple[str, str]]], list[int]](list)
    for (fence, node_rank), pairs in names.items():
        alike[node_rank, frozenset(pairs)].append(fence)
    rows_by_key = dict[SeriesKey, Row[Any]]()
    for (node_rank, common), fences in alike.items():
        sources, tags = ({pair[at] for pair in common} for at in (0, 1))
        chosen = {"fences": fences, "node_rank": node_rank, "sources": [*sources], "tags": [*tags]}
        for row in session.execute(_OF_TAGS, chosen).all():
            if (row.source, row.tag) in common:
                rows_by_key[SeriesKey(row.fence, node_rank, row.source, row.tag)] = row
    return rows_by_key


def _empty_series(key: SeriesKey, first: Point) -> dict[str, object]:
    step, value, wall = first
    return {
        **key._asdict(),
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


class _Figures(NamedTuple):
    """Figures of the new points of one series."""

    first_step: int
    last_step: int
    lowest_step: int
    highest_step: int
    falls: bool
    """Whether a step is lower than the one before it."""
    last_value: float
    last_wall: float
    lowest: float
    highest: float
    """Of the finite values; infinite without any."""
    finite_sum: float
    finite_count: int


def _figures(series: Sequence[PackedPoints]) -> Iterator[_Figures]:
    """The figures of each of the series, which have points; numpy is called for all of them at once."""
    steps, values, walls = (
        np.frombuffer(b"".join(columns), kind)
        for columns, kind in (
            ([pts.steps for pts in series], "<i8"),
            ([pts.values for pts in series], "<f8"),
            ([pts.walls for pts in series], "<f8"),
        )
    )
    ends = np.cumsum([len(pts) for pts in series])
    starts, finite, falls = np.concatenate([[0], ends[:-1]]), np.isfinite(values), np.zeros(len(steps), dtype=bool)
    falls[1:] = steps[1:] < steps[:-1]
    falls[starts] = False
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    columns = (
        steps[starts],
        steps[ends - 1],
        np.minimum.reduceat(steps, starts),
        np.maximum.reduceat(steps, starts),
        np.logical_or.reduceat(falls, starts),
        values[ends - 1],
        walls[ends - 1],
        np.minimum.reduceat(np.where(finite, values, np.inf), starts),
        np.maximum.reduceat(np.where(finite, values, -np.inf), starts),
        sums,
        np.add.reduceat(finite.astype(np.int64), starts),
    )
    return map(_Figures._make, zip(*(column.tolist() for column in columns), strict=True))


def _lives(series: Row[Any], pts: PackedPoints, own: _Figures) -> tuple[list[tuple[int, int]], int]:
    """Where the script went back to an earlier step, as `steps_back` says, and the highest step of its last life."""
    if not goes_back(series.source):
        return [], max(series.last_step, own.highest_step)
    if own.first_step >= series.last_step and not own.falls:
        return [], own.last_step
    return steps_back(series.first_step, (series.last_step, series.last_wall), series[_COUNT], [*pts])


def _summary(series: Row[Any], pts: PackedPoints, own: _Figures, last_step: int) -> tuple[Any, ...]:
    """The row of a series for `_CHANGE_SERIES`."""
    before, since = series.last_value, series.not_finite_since
    if since is not None or own.finite_count < len(pts):
        for step, value, _ in pts:
            since = formats.not_finite_since(value, step, before, since)
            before = value
    lowest, highest = series.lowest, series.highest
    if own.finite_count:
        lowest = own.lowest if lowest is None else min(lowest, own.lowest)
        highest = own.highest if highest is None else max(highest, own.highest)
    return (
        series.id,
        series[_COUNT] + len(pts),
        min(series.first_step, own.lowest_step),
        last_step,
        own.last_wall,
        pts.values[-NUMBER_BYTES:],
        None if math.isnan(own.last_value) else own.last_value,
        lowest,
        highest,
        series.finite_sum + own.finite_sum,
        series.finite_count + own.finite_count,
        since,
    )
