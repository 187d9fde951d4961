"""The last, best, lowest and highest value of every series that runs log, for comparing them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics.columns import within
from db.metrics.curves import SeriesRow, ends_of, read_columns, series_rows
from domain.messages import SCRIPT_KINDS
from domain.series import goals
from domain.series.goals import PRINTED

ALL_POINTS = 10**9
AnyT = TypeVar("AnyT")


@dataclass(frozen=True)
class SeriesResult:
    """What became of one series of a run."""

    last: float
    best: float | None
    """The lowest or highest finite value, by `domain.series.goals`; None where the name says no direction."""
    steps: int
    """The step of the last point."""
    lowest: float | None = None
    highest: float | None = None
    """Of the finite values; None without any."""


def results(store: Store, run_ids: Collection[str]) -> dict[str, dict[str, SeriesResult]]:
    """Return the results of all logged series by run id and name."""
    with store.read() as session:
        return results_of(session, run_ids, series_rows(session, run_ids, sources=SCRIPT_KINDS))


def without_repeated(results: Mapping[str, AnyT]) -> dict[str, AnyT]:
    """Leave out what a run printed of a series that it logs too: `printed/loss` beside `train/loss`."""
    logged = {_last_part(name) for name in results if not name.startswith(PRINTED)}
    return {
        name: result
        for name, result in results.items()
        if not (name.startswith(PRINTED) and _last_part(name) in logged)
    }


def _last_part(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def results_of(
    session: Session, run_ids: Collection[str], rows: Sequence[SeriesRow]
) -> dict[str, dict[str, SeriesResult]]:
    """Return the results of these series of the runs by run id and name."""
    by_run: dict[str, dict[str, SeriesResult]] = {run_id: {} for run_id in run_ids}
    extremes = _extremes(session, rows)
    for row in rows:  # older attempts first
        name, values = row.name, list(extremes[row.id])
        if before := by_run[row.run_id].get(name):
            values += _finite(before.lowest, before.highest)
        lowest, highest = min(values, default=None), max(values, default=None)
        best = goals.best(name, values)
        by_run[row.run_id][name] = SeriesResult(row.last_value, best, row.last_step, lowest, highest)
    return by_run


def _extremes(session: Session, rows: Sequence[SeriesRow]) -> dict[int, tuple[float, ...]]:
    """The lowest and the highest of each attempt's finite points that count, by series id; empty without any.

    They stand with the series; only where a newer attempt replaced its end the points are read."""
    ends = ends_of(rows)
    cut = [row for row in rows if _is_cut(row, ends[row.id])]
    extremes = {row.id: _finite(row.lowest, row.highest) for row in rows}
    for series, columns in read_columns(session, cut, ALL_POINTS).items():
        values = within(columns, None, ends[series])[1]
        finite = values[np.isfinite(values)]
        extremes[series] = (float(finite.min()), float(finite.max())) if finite.size else ()
    return extremes


def _finite(*values: float | None) -> tuple[float, ...]:
    return tuple(value for value in values if value is not None)


def _is_cut(row: SeriesRow, end: int | None) -> bool:
    return end is not None and row.last_step > end
