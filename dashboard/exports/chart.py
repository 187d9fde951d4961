"""A chart as SVG: curves of runs over steps, with axes, drawn without a script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dashboard.exports.elements import Element, element
from domain.text import formats


def chart(title: str, lines: Sequence[ChartLine]) -> Element | None:
    """Return a figure of the curves; None where no run has two finite values."""
    finite = [np.isfinite(line.values) for line in lines]
    if not any(int(mask.sum()) > 1 for mask in finite):
        return None
    steps = np.concatenate([line.steps[mask] for line, mask in zip(lines, finite, strict=True)])
    values = np.concatenate([line.values[mask] for line, mask in zip(lines, finite, strict=True)])
    x = _Axis.over(steps, LEFT, WIDTH - RIGHT)
    y = _Axis.over(values, HEIGHT - BOTTOM, TOP)
    picture = element(
        "svg", *_grid(x, y), *(_curve(line, x, y) for line in lines),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{title} by step",
    )  # fmt: skip
    return element("figure", element("figcaption", title), picture)


WIDTH, HEIGHT = 400, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 24
"""Margins of the plot."""
TICKS = 5
"""About so many values beside an axis."""
SMALLEST_SHARE, TINY, LARGEST = 1e-12, 1e-290, 1e308
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ChartLine:
    """A curve of one run, whose place in the comparison chooses its colour."""

    place: int
    label: str
    steps: Numbers
    values: Numbers


@dataclass(frozen=True)
class _Axis:
    """One dimension of the plot: values from `low` to `high` lie between two coordinates."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, numbers: Numbers, start: float, end: float) -> _Axis:
        """Return the axis of numbers; where they are all but equal, with some space around them."""
        low, high = float(numbers.min()), float(numbers.max())
        if high / 2 - low / 2 <= SMALLEST_SHARE * max(abs(low), abs(high)):
            pad = abs(low) / 2 if abs(low) > TINY else 1.0
            low, high = max(low - pad, -LARGEST), min(high + pad, LARGEST)
        return cls(low, high, start, end)

    def at(self, numbers: Numbers) -> Numbers:
        """Return the coordinates of numbers; halves keep the largest doubles from overflowing."""
        share = np.clip((numbers / 2 - self.low / 2) / (self.high / 2 - self.low / 2), 0, 1)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round numbers within the axis."""
        span = self.high / TICKS - self.low / TICKS
        magnitude = 10.0 ** math.floor(math.log10(span))
        step = next((m for m in (1, 2, 5) if m * magnitude >= span), 10) * magnitude
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, min(last, first + 2 * TICKS) + 1)]


def _grid(x: _Axis, y: _Axis) -> Iterator[Element]:
    for value, at in zip(y.ticks(), y.at(np.array(y.ticks())), strict=True):
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{at:.1f}", y2=f"{at:.1f}", class_="grid")
        label = formats.number(value)
        yield element("text", label, x=LEFT - 6, y=f"{at + 4:.1f}", text_anchor="end")
    for value, at in zip(x.ticks(), x.at(np.array(x.ticks())), strict=True):
        yield element("text", formats.count(round(value)), x=f"{at:.1f}", y=HEIGHT - 6, text_anchor="middle")


def _curve(line: ChartLine, x: _Axis, y: _Axis) -> Element:
    last = formats.number(float(line.values[-1]), 4)
    title = element("title", f"{line.label}: last {last} at step {line.steps[-1]:.0f}")
    return element("path", title, d=_path(line, x, y), class_=f"curve c{line.place}")


def _path(line: ChartLine, x: _Axis, y: _Axis) -> str:
    """Return the path's commands: a new stroke after every value that is not finite, a dot for one alone."""
    finite = np.isfinite(line.values)
    begins = finite & ~np.concatenate([[False], finite[:-1]])
    ends = finite & ~np.concatenate([finite[1:], [False]])
    xs, ys = x.at(line.steps), y.at(np.where(finite, line.values, y.low))
    parts = [
        f"{'M' if begins[at] else 'L'}{xs[at]:.1f} {ys[at]:.1f}{'h0' if begins[at] and ends[at] else ''}"
        for at in np.flatnonzero(finite)
    ]
    return "".join(parts)
