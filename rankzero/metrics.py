"""The curves of a run in a script: arrays where numpy is installed, lists where it is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Row = tuple[int, float, float]


class Metrics(dict[str, Any]):
    """Each series by name: rows of step, value and wall time (seconds since the epoch), oldest first.

    With numpy an array of shape (points, 3), else a list of tuples."""

    @classmethod
    def of(cls, series: Mapping[str, Iterable[Any]]) -> Metrics:
        """Make them of what the API returns, where numbers that are not finite are text."""
        rows = {name: [(int(step), float(value), float(wall)) for step, value, wall in points]
                for name, points in series.items()}  # fmt: skip
        return cls({name: _array(own) for name, own in rows.items()})

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each step and a column for each series. Raises ImportError."""
        import pandas  # type: ignore[import-untyped]

        columns = {}
        for name, rows in self.items():
            steps, values = [int(row[0]) for row in rows], [float(row[1]) for row in rows]
            columns[name] = pandas.Series(dict(zip(steps, values, strict=True)), dtype="float64")
        return pandas.DataFrame(columns).rename_axis("step").sort_index()


def _array(rows: list[Row]) -> Any:
    try:
        import numpy
    except ImportError:
        return rows
    return numpy.array(rows, dtype=numpy.float64).reshape(-1, 3)
