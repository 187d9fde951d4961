"""Points as rows of W&B: the values of one step and time together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

STEP = "step"
"""The x-axis of all series; W&B's own step is the number of the row."""
TIME = "_timestamp"

Row = dict[str, Any]


def rows_of(logged: Mapping[str, Sequence[Sequence[Any]]]) -> Iterator[Row]:
    """Yield the rows of these points by their steps: the values of one step, and further ones where a step has two."""
    by_step: dict[int, list[Row]] = {}
    for name, points in logged.items():
        for step, value, wall in points:
            rows = by_step.setdefault(step, [])
            row = next((row for row in rows if name not in row and row[TIME] == wall), None)
            if row is None:
                rows.append(row := {STEP: step, TIME: wall})
            row[name] = float(value)
    for step in sorted(by_step):
        yield from sorted(by_step[step], key=lambda row: float(row[TIME]))


def values_in(rows: Sequence[Row]) -> int:
    """Return the number of points in the rows."""
    return sum(len(row.keys() - {STEP, TIME}) for row in rows)
