"""Append points to the series of attempts, and to what a table needs of them without opening them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import Row, Table, bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from db.metrics import points
from db.models import Attempt, Series
from db.postgres import NUL, NUL_SHOWN
from db.records.history import add_history
from db.records.lookups import AttemptKey
from domain import not_finite
from domain.messages import Point, PointKind

MAX_SERIES = 10_000
"""Maximum number of series of one attempt; further ones are dropped with a history line."""
# Statements of tables, not of classes, built once: points arrive many times a second.
_SERIES = cast(Table, Series.__table__)
_OF_TAGS = select(_SERIES).where(
    _SERIES.c.fence.in_(bindparam("fences", expanding=True)), _SERIES.c.node_rank == bindparam("node_rank"),
    _SERIES.c.source.in_(bindparam("sources", expanding=True)),
    _SERIES.c.tag.in_(bindparam("tags", expanding=True)),
)  # fmt: skip
_COUNT = [*_SERIES.c.keys()].index("count")
"""A row has a method of that name."""
_CHANGE_SERIES = update(_SERIES).where(_SERIES.c.id == bindparam("of"))


class SeriesKey(NamedTuple):
    """The name of a series in the store."""

    fence: int
    node_rank: int
    source: str
    tag: str


SeriesOf = tuple[Attempt | AttemptKey, int, PointKind, Mapping[str, list[Point]]]
"""An attempt, a node rank, where the points come from, and the points by tag."""


def store_series(
    session: Session,
    attempt: Attempt | AttemptKey,
    node_rank: int,
    source: PointKind,
    series: Mapping[str, list[Point]],
) -> None:
    """Append points to the series of an attempt, and to what its figures are read from."""
    store_batches(session, [(attempt, node_rank, source, series)])


def store_batches(session: Session, batches: Sequence[SeriesOf]) -> None:
    """Append points to series of several attempts, in this order, by a few statements for all."""
    arrived, attempts = dict[SeriesKey, list[Point]](), dict[int, Attempt | AttemptKey]()
    for attempt, node_rank, source, series in batches:
        attempts[attempt.fence] = attempt
        for tag, pts in series.items():
            key = SeriesKey(attempt.fence, node_rank, source, tag.replace(NUL, NUL_SHOWN))
            if pts:
                arrived[key] = [*arrived[key], *pts] if key in arrived else pts
    rows = _series_rows(session, arrived)
    if fresh := [key for key in arrived if key not in rows]:
        for fence in {key.fence: None for key in fresh}:
            _add_series(session, attempts[fence], arrived, [key for key in fresh if key.fence == fence])
        rows |= _series_rows(session, fresh)
    known = {key: pts for key, pts in arrived.items() if key in rows}
    points.append(session, {rows[key].id: (rows[key][_COUNT], pts) for key, pts in known.items()})
    if known:
        session.execute(_CHANGE_SERIES, [_summary(rows[key], pts) for key, pts in known.items()])


def _add_series(
    session: Session,
    attempt: Attempt | AttemptKey,
    arrived: Mapping[SeriesKey, list[Point]],
    fresh: Sequence[SeriesKey],
) -> None:
    existing = session.scalar(select(func.count()).where(Series.fence == attempt.fence)) or 0
    available = max(0, MAX_SERIES - existing)
    if len(fresh) > available > 0:
        text = f"more than {MAX_SERIES} series: further names are not stored"
        add_history(session, attempt.run_id, attempt.number, arrived[fresh[0]][0][2], text)
    if rows := [_empty_series(key, arrived[key][0]) for key in fresh[:available]]:
        session.execute(insert(Series), rows)


def _series_rows(session: Session, keys: Iterable[SeriesKey]) -> dict[SeriesKey, Row[Any]]:
    """The rows of series that exist: one statement for all parts with the same names."""
    names = defaultdict[tuple[int, int], set[tuple[str, str]]](set)
    for fence, node_rank, source, tag in keys:
        names[fence, node_rank].add((source, tag))
    alike = defaultdict[tuple[int, frozenset[tuple[str, str]]], list[int]](list)
    for (fence, node_rank), pairs in names.items():
        alike[node_rank, frozenset(pairs)].append(fence)
    found = dict[SeriesKey, Row[Any]]()
    for (node_rank, common), fences in alike.items():
        sources, tags = ({pair[at] for pair in common} for at in (0, 1))
        chosen = {"fences": fences, "node_rank": node_rank, "sources": [*sources], "tags": [*tags]}
        for row in session.execute(_OF_TAGS, chosen):
            if (row.source, row.tag) in common:
                found[SeriesKey(row.fence, node_rank, row.source, row.tag)] = row
    return found


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


def _summary(series: Row[Any], pts: Sequence[Point]) -> dict[str, object]:
    steps, values, _ = zip(*pts, strict=True)
    finite = [*filter(math.isfinite, values)]
    before, since = series.last_value, series.not_finite_since
    if since is not None or len(finite) < len(values):
        for step, value in zip(steps, values, strict=True):
            since = not_finite.since(value, step, before, since)
            before = value
    last = pts[-1]
    return {
        "of": series.id,
        "count": series[_COUNT] + len(pts),
        "first_step": min(series.first_step, *steps),
        "last_step": max(series.last_step, *steps),
        "last_wall": last[2],
        "last_value": last[1],
        "last_number": None if math.isnan(last[1]) else last[1],
        "lowest": min((v for v in (series.lowest, *finite) if v is not None), default=None),
        "highest": max((v for v in (series.highest, *finite) if v is not None), default=None),
        "finite_sum": series.finite_sum + sum(finite),
        "finite_count": series.finite_count + len(finite),
        "not_finite_since": since,
    }
