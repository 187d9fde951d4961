"""Reading curves: one series over all attempts of a run, cut where a newer attempt took over."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics import points
from db.metrics.lives import counting_points, goes_back
from db.metrics.many_curves import StepRange, thinned_points
from db.metrics.series_names import public_name
from db.models import Attempt, Series
from domain.messages import Point
from domain.views import Segment, SeriesView


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
        read = _read(session, series_rows, StepRange(since_step, until_step), max_points, whole)
    return {name: _curve(name, rows, read, whole) for name, rows in sorted(by_name.items())}


def of_metric(store: Store, run_id: str, metric: str, most: int | None = None) -> list[Point]:
    """Points of a metric over all attempts: from the event files, else from what the run printed."""
    named = series(store, run_id, (metric, f"printed/{metric}"), "all", max_points=most)
    shown = named.get(metric) or named.get(f"printed/{metric}")
    return shown.points if shown else []


def _rows(session: Session, run_id: str, source: str) -> Sequence[tuple[Series, int]]:
    query = (
        select(Series, Attempt.number)
        .join(Attempt, Attempt.fence == Series.fence)
        .where(Attempt.run_id == run_id)
        .order_by(Attempt.number, Series.id)
    )
    if source != "all":
        query = query.where(Series.source == source)
    return [(row, number) for row, number in session.execute(query)]


def _read(
    session: Session, rows: Sequence[Series], window: StepRange, max_points: int | None, whole: bool
) -> dict[int, list[Point]]:
    if max_points is not None:
        return thinned_points(session, rows, max_points, window, whole=whole)
    return {row.id: _read_all(session, row, window, whole) for row in rows}


def _read_all(session: Session, row: Series, window: StepRange, whole: bool) -> list[Point]:
    if whole or not goes_back(row.source):
        return points.read(session, row.id, window.first, window.last)
    last = row.last_step if window.last is None else min(row.last_step, window.last)
    bounded = None if window.first is None and window.last is None else last
    return counting_points(points.read(session, row.id, window.first, bounded))


def _curve(name: str, rows: Sequence[tuple[Series, int]], read: Mapping[int, list[Point]], whole: bool) -> SeriesView:
    segments: list[Segment] = []
    until = math.inf
    for row, number in reversed(rows):
        segment_points = read[row.id] if whole else [p for p in read[row.id] if p[0] < until]
        segments.insert(0, Segment(number, segment_points))
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


def to_json_points(points: Sequence[Point]) -> list[list[float | str]]:
    """[[step, value, wall time], …] as the API and the live channel send them."""
    return [[step, to_json_number(value), wall] for step, value, wall in points]
