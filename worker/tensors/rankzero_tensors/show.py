"""`show SOURCE`: each tensor's shape, dtype and statistics, and the totals of the checkpoint.

NaN and infinities are counted, and all other figures are those of the finite values. Sums are accumulated in float64,
block by block; a figure that float64 cannot hold is null.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .figures.rows import Row, fitting, known, plain
from .figures.values import blocks, have_numbers
from .opening import open_source

if TYPE_CHECKING:
    import torch

    from .reports import ProgressReport
    from .sources import TensorSource


def run(arguments: list[str], report: ProgressReport) -> dict[str, Any]:
    """Show the checkpoint at a path. Raises Refused, OSError."""
    (path,) = arguments
    with closing(open_source(Path(path))) as source:
        return show(source, report)


def show(source: TensorSource, report: ProgressReport) -> dict[str, Any]:
    """Return the result document. Raises Refused, OSError."""
    rows, done_bytes = [], 0
    total_bytes = sum(facts.nbytes for facts in source.tensors.values())
    for name, facts in source.tensors.items():
        report.progress(done_bytes, total_bytes, f"reading {plain(name)}")
        rows.append(_row(source, name))
        done_bytes += facts.nbytes
    shown = fitting(rows, MOST_BYTES, lambda row: bool(row["nan"] or row["inf"]))
    return {
        "format": source.format, "totals": _totals(rows), "dtypes": _dtypes(rows), "tensors": shown,
        "left_out": len(rows) - len(shown), "notes": list(source.notes),
    }  # fmt: skip


MOST_BYTES = 1_500_000
"""Of the rows in the document: about 6,000 tensors, those with NaN or infinities before all others."""


@dataclass
class Statistics:
    """Figures of the values seen so far."""

    finite: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    squares: float = 0.0
    mean: float = 0.0
    deviations: float = 0.0
    """The sum of the squared distances from the mean."""
    least: float = math.inf
    most: float = -math.inf

    def add(self, block: torch.Tensor) -> None:
        """Add a block of float64 values."""
        is_finite = block.isfinite()
        if not is_finite.all():
            nan = int(block.isnan().sum())
            self.nan += nan
            self.infinite += int((~is_finite).sum()) - nan
            block = block[is_finite]
        if block.numel():
            self._add_finite(block)

    def _add_finite(self, values: torch.Tensor) -> None:
        """Update the figures; the variance by the formula of Chan, Golub and LeVeque, which does not cancel.

        *Updating Formulae and a Pairwise Algorithm for Computing Sample Variances*, 1979, equation 2.1: for parts a and
        b, S = S_a + S_b + d² n_a n_b / n with d = mean_b - mean_a, and mean = mean_a + d n_b / n.
        """
        count, mean = values.numel(), float(values.mean())
        together, distance = self.finite + count, mean - self.mean
        self.deviations += float((values - mean).square().sum())
        self.deviations += distance * distance * self.finite * count / together
        self.mean += distance * count / together
        self.finite = together
        self.squares += float(values.square().sum())
        self.zeros += int((values == 0).sum())
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))

    def figures(self) -> Row:
        """Return them as JSON has them: the L2 norm, and the standard deviation of the population."""
        counts = {"zeros": self.zeros, "nan": self.nan, "inf": self.infinite}
        if not self.finite:
            return _NO_FIGURES | counts
        measured = {
            "norm": math.sqrt(self.squares), "mean": self.mean, "std": math.sqrt(self.deviations / self.finite),
            "min": self.least, "max": self.most,
        }  # fmt: skip
        return {name: known(value) for name, value in measured.items()} | counts


_NO_FIGURES = dict.fromkeys(("norm", "mean", "std", "min", "max"))


def _row(source: TensorSource, name: str) -> Row:
    facts, first = source.tensors[name], source.tied.get(name)
    row = {
        "name": plain(name), "shape": list(facts.shape), "dtype": facts.dtype, "values": math.prod(facts.shape),
        "bytes": facts.nbytes, "tied": first and plain(first),
    }  # fmt: skip
    tensor = source.read(name)
    if not have_numbers(tensor):
        return row | _NO_FIGURES | {"zeros": None, "nan": None, "inf": None}
    statistics = Statistics()
    for block in blocks(tensor):
        statistics.add(block)
    return row | statistics.figures()


def _totals(rows: Sequence[Row]) -> Row:
    """Return the sums; a tensor of two names counts once."""
    rows = [row for row in rows if row["tied"] is None]
    summed = {name: sum(row[name] or 0 for row in rows) for name in ("values", "bytes", "zeros", "nan", "inf")}
    norm = math.hypot(*(row["norm"] for row in rows if row["norm"] is not None))
    return {"tensors": len(rows), "norm": known(norm)} | summed


def _dtypes(rows: Sequence[Row]) -> list[Row]:
    """Return the tensors, values and bytes of each dtype, the most bytes first."""
    of_dtype: dict[str, list[Row]] = defaultdict(list)
    for row in (row for row in rows if row["tied"] is None):
        of_dtype[row["dtype"]].append(row)
    summed = [
        {"dtype": dtype, "tensors": len(rows)} | {name: sum(row[name] for row in rows) for name in ("values", "bytes")}
        for dtype, rows in of_dtype.items()
    ]
    return sorted(summed, key=lambda one: one["bytes"], reverse=True)
