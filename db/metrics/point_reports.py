"""Append points to the series of attempts, and to what a table needs of them without opening them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from sqlalchemy import ColumnElement, Row, Table, bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from db.lookups import AttemptKey, add_history
from db.metrics import points
from db.metrics.columns import Columns, goes_back, within
from db.metrics.curves import read_columns
from db.models import Attempt, HistoryEntry, Series
from db.postgres import NUL, NUL_SHOWN
from db.statements import Prepared
from domain.messages import MAX_SERIES, Point, PointKind
from domain.points import NUMBER_BYTES, PackedPoints
from domain.text import formats

EXTREMES_OF = 16_384
"""Points of which a series' extremes are computed again when its script goes back; of more, those of buckets."""
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
    "finite_sum", "finite_count", "not_finite_since", "file_id", "repeats",
)  # fmt: skip


class SeriesKey(NamedTuple):
    """The name of a series in the store."""

    fence: int
    node_rank: int
    source: str
    tag: str


class SeriesOf(NamedTuple):
    """Points of one file that arrived together, by tag."""

    attempt: Attempt | AttemptKey
    node_rank: int
    source: PointKind
    series: Mapping[str, Iterable[Point]]
    file: int | None = None
    """A number that grows with each new file; None: there are no lives to tell apart."""


def store_series(
    session: Session,
    attempt: Attempt | AttemptKey,
    node_rank: int,
    source: PointKind,
    series: Mapping[str, Iterable[Point]],
    file: int | None = None,
) -> None:
    """Append points of one file (`SeriesOf`) to the series of an attempt, and to what its figures are read from."""
    store_batches(session, [SeriesOf(attempt, node_rank, source, series, file)])


def store_batches(session: Session, batches: Sequence[SeriesOf]) -> list[set[str]]:
    """Append points to series of several attempts, in this order, by a few statements for all.

    Return for each batch the tags of which a later life of the script begins with it."""
    attempts = {batch.attempt.fence: batch.attempt for batch in batches}
    begun = [set[str]() for _ in batches]
    for turn in _turns(batches):
        for key in _store_turn(session, attempts, turn):
            begun[turn[key].batch].add(key.tag)
    return begun


class _Arrived(NamedTuple):
    """New points of one series, and the number of the batch that they begin in."""

    batch: int
    file: int | None
    points: PackedPoints

    def goes_on_in(self, other: _Arrived) -> bool:
        """Whether the other points belong to the same life: they are of the same file, or of higher steps."""
        ends = (np.frombuffer(own.points.steps, "<i8") for own in (self, other))
        return self.file == other.file or bool(next(ends).max() < next(ends).min())

    def followed_by(self, other: _Arrived) -> _Arrived:
        """Add the other points at the end."""
        return _Arrived(self.batch, other.file, self.points.followed_by(other.points))


def _turns(batches: Sequence[SeriesOf]) -> Iterator[dict[SeriesKey, _Arrived]]:
    """Yield the points by series; those of a file that goes back behind another one begin a turn of their own."""
    turn = dict[SeriesKey, _Arrived]()
    for number, batch in enumerate(batches):
        for tag, own in batch.series.items():
            key = SeriesKey(batch.attempt.fence, batch.node_rank, batch.source, tag.replace(NUL, NUL_SHOWN))
            new = _Arrived(number, batch.file, PackedPoints.of(own))
            if not new.points:
                continue
            if key in turn and not turn[key].goes_on_in(new):
                yield turn
                turn = {}
            turn[key] = turn[key].followed_by(new) if key in turn else new
    if turn:
        yield turn


def _store_turn(
    session: Session, attempts: Mapping[int, Attempt | AttemptKey], arrived: Mapping[SeriesKey, _Arrived]
) -> list[SeriesKey]:
    """Store points of at most one life of each series; return the series of which a later life begins."""
    rows = _series_rows(session, arrived)
    figures = dict(zip(arrived, _figures([own.points for own in arrived.values()]), strict=True))
    ended = {key: row for key, row in rows.items() if _begins_life(row, arrived[key].file, figures[key])}
    rows = {key: _row_of_file(session, row, arrived[key].file) for key, row in rows.items() if key not in ended}
    extremes = {key: _end_life(session, row, figures[key].lowest_step) for key, row in ended.items()}
    if fresh := [key for key in arrived if key not in rows]:
        for fence, kind in {(key.fence, key.source): None for key in fresh}:
            names = [key for key in fresh if (key.fence, key.source) == (fence, kind)]
            _add_series(session, attempts[fence], kind, arrived, names, extremes)
        rows |= _series_rows(session, fresh)
    stored = {key: own for key, own in arrived.items() if key in rows}
    points.append(session, {rows[key].id: (rows[key][_COUNT], own.points) for key, own in stored.items()})
    _CHANGE_SERIES.run(session, [_summary(rows[key], own, figures[key]) for key, own in stored.items()])
    _note_lives(session, attempts, ended, {key: arrived[key].points for key in ended})
    return [*ended]


# Lives of a script in one attempt: where a new file goes back to an earlier step, its points count from there on.


def _begins_life(row: Row[Any], file: int | None, own: _Figures) -> bool:
    """Whether the points are of a newer file than those of the series, and go back; one file is one life."""
    if not goes_back(row.source) or file is None or row.file_id is None:
        return False
    return file > int(row.file_id) and own.lowest_step <= int(row.last_step)


def _row_of_file(session: Session, row: Row[Any], file: int | None) -> Row[Any]:
    """Return the life that a file belongs to: the last points of an older one may come late."""
    if file is None or row.file_id is None or file >= row.file_id:
        return row
    lives = select(_SERIES).where(*_is_past_of(row), _SERIES.c.file_id >= file)
    return session.execute(lives.order_by(_SERIES.c.id).limit(1)).first() or row


def _is_past_of(row: Row[Any]) -> tuple[ColumnElement[bool], ...]:
    names = (_SERIES.c.node_rank, _SERIES.c.source, _SERIES.c.tag)
    return _SERIES.c.past_fence == row.fence, *(column == getattr(row, column.key) for column in names)


def _end_life(session: Session, row: Row[Any], until: int) -> tuple[float | None, float | None]:
    """Let a later life take the place of this one; return the extremes of what counts before its first step."""
    session.execute(update(_SERIES).where(_SERIES.c.id == row.id).values(fence=None, past_fence=row.fence))
    newest_first = select(Series).where(*_is_past_of(row)).order_by(Series.id.desc())
    lives = session.scalars(newest_first.execution_options(populate_existing=True)).all()
    read, values = read_columns(session, lives, EXTREMES_OF), list[Columns]()
    for life in lives:
        values.append(within(read[life.id], None, until - 1)[1])
        until = min(until, life.first_step)
    counting = np.concatenate(values)
    finite = counting[np.isfinite(counting)]
    return (float(finite.min()), float(finite.max())) if finite.size else (None, None)


def _note_lives(
    session: Session,
    attempts: Mapping[int, Attempt | AttemptKey],
    ended: Mapping[SeriesKey, Row[Any]],
    arrived: Mapping[SeriesKey, PackedPoints],
) -> None:
    """Say once for each attempt where its script went back to an earlier step."""
    for fence in dict.fromkeys(key.fence for key in ended):
        key = max((key for key in ended if key.fence == fence), key=lambda key: ended[key][_COUNT])
        step, _, wall = next(iter(arrived[key]))
        _note_life(session, attempts[fence], key.tag, (ended[key].last_step, step), wall)


def _note_life(session: Session, attempt: Attempt | AttemptKey, tag: str, back: tuple[int, int], wall: float) -> None:
    """Add a history line; more series of the same life add none, nor does a script that recounts every epoch."""
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
    arrived: Mapping[SeriesKey, _Arrived],
    fresh: Sequence[SeriesKey],
    extremes: Mapping[SeriesKey, tuple[float | None, float | None]],
) -> None:
    """Add rows for new names; those of one kind of source never take the place of another's.

    `extremes`: those that the earlier lives of a series leave."""
    of_source = select(func.count()).where(Series.fence == attempt.fence, Series.source == source)
    existing = session.scalar(of_source) or 0
    available = max(0, MAX_SERIES - existing)
    if len(fresh) > available > 0:
        text = f"more than {MAX_SERIES} series: further names are not stored"
        add_history(session, attempt.run_id, attempt.number, next(iter(arrived[fresh[0]].points))[2], text)
    if rows := [_empty_series(key, next(iter(arrived[key].points))) for key in fresh[:available]]:
        for key, row in zip(fresh, rows, strict=False):
            row["lowest"], row["highest"] = extremes.get(key, (None, None))
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
        "file_id": None,
        "repeats": 0,
    }


class _Figures(NamedTuple):
    """Figures of the new points of one series."""

    first_step: int
    last_step: int
    lowest_step: int
    highest_step: int
    rises: bool
    """Whether each step is higher than the one before it."""
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
    starts, finite, rises = np.concatenate([[0], ends[:-1]]), np.isfinite(values), np.ones(len(steps), dtype=bool)
    rises[1:] = steps[1:] > steps[:-1]
    rises[starts] = True
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    columns = (
        steps[starts],
        steps[ends - 1],
        np.minimum.reduceat(steps, starts),
        np.maximum.reduceat(steps, starts),
        np.logical_and.reduceat(rises, starts),
        values[ends - 1],
        walls[ends - 1],
        np.minimum.reduceat(np.where(finite, values, np.inf), starts),
        np.maximum.reduceat(np.where(finite, values, -np.inf), starts),
        sums,
        np.add.reduceat(finite.astype(np.int64), starts),
    )
    return map(_Figures._make, zip(*(column.tolist() for column in columns), strict=True))


def _repeats(row: Row[Any], pts: PackedPoints, own: _Figures) -> int:
    """The number of points that stand at no higher step than one before them in the same life."""
    begins = not row[_COUNT]
    if own.rises and (begins or own.first_step > row.last_step):
        return 0
    steps = np.frombuffer(pts.steps, "<i8")
    reached = np.maximum.accumulate(steps if begins else np.maximum(steps, row.last_step))[:-1]
    return int((steps[1:] <= reached).sum()) + (not begins and own.first_step <= row.last_step)


def _summary(series: Row[Any], arrived: _Arrived, own: _Figures) -> tuple[Any, ...]:
    """The row of a series for `_CHANGE_SERIES`."""
    pts, files = arrived.points, [file for file in (series.file_id, arrived.file) if file is not None]
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
        max(series.last_step, own.highest_step),
        own.last_wall,
        pts.values[-NUMBER_BYTES:],
        None if math.isnan(own.last_value) else own.last_value,
        lowest,
        highest,
        series.finite_sum + own.finite_sum,
        series.finite_count + own.finite_count,
        since,
        max(files, default=None),
        series.repeats + _repeats(series, pts, own),
    )
