"""The last value of some of a run's series, and the values that came since somebody looked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics.columns import within
from db.metrics.curves import SeriesRow, StepRange, read_columns, series_rows
from db.metrics.run_results import ALL_POINTS
from db.metrics.series_names import main_loss
from domain.messages import SCRIPT_KINDS
from domain.series.goals import main_metric


@dataclass(frozen=True)
class LatestValues:
    """A series at one moment."""

    attempt: int
    step: int
    """Of its last point."""
    last: float
    extremes: tuple[float, ...] = ()
    """The lowest and the highest finite value of the points that came since; empty without any."""


def latest_values(
    store: Store, run_id: str, names: Collection[str], earlier: Seen | None = None
) -> dict[str, LatestValues]:
    """Return the last values of those of the named series that the run has, and what came since `seen`."""
    if not names:
        return {}
    with store.read() as session:
        rows = [row for row in series_rows(session, [run_id], names=names) if row.name in names]
        extremes = {row.id: _extremes_since(session, row, earlier) if earlier else () for row in rows}
    latest: dict[str, LatestValues] = {}
    for row in rows:  # older attempts and lives first
        before = latest[row.name].extremes if row.name in latest else ()
        latest[row.name] = LatestValues(row.attempt, row.last_step, row.last_value, (*before, *extremes[row.id]))
    return latest


def main_values(store: Store, run_id: str) -> dict[str, float]:
    """Return the last values of a run's training loss and of the series that says how good it is."""
    with store.read() as session:
        last = {row.name: row.last_value for row in series_rows(session, [run_id], sources=SCRIPT_KINDS)}
    return {name: last[name] for name in (main_loss(last), main_metric(last)) if name is not None}


@dataclass(frozen=True)
class Seen:
    """The points that somebody knows: of an attempt, each series up to a step."""

    attempt: int
    steps: Mapping[str, int]


def _extremes_since(session: Session, row: SeriesRow, earlier: Seen) -> tuple[float, ...]:
    since = earlier.steps.get(row.name) if row.attempt == earlier.attempt else None
    if row.attempt < earlier.attempt or (since is not None and row.last_step <= since):
        return ()
    if since is None or row.first_step > since:
        return tuple(value for value in (row.lowest, row.highest) if value is not None)
    columns = read_columns(session, [row], ALL_POINTS, StepRange(first=since + 1))[row.id]
    values = within(columns, since + 1, None)[1]
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else ()
