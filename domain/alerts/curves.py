"""Find spikes in a curve, and the step since which it has not improved. Smaller values are better. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from domain.messages import Point

BEFORE = 50
"""Points before a spike that it is compared with."""
IN_A_ROW = 3
"""Points that all lie above: a single batch may be hard."""
SPREADS = 8.0
"""How many spreads above the median of the points before; the spread is the usual distance from that median."""
RATIO = 1.5
"""How many times that median, where it is positive."""
PRECISION = 1e-9
"""Of a difference of sums: what is smaller in proportion is noise of the arithmetic."""
SMOOTHING = 10
"""A tenth of the points of the limit are averaged before they count as an improvement."""


def spikes_in(points: Sequence[Point], count: int, total: float) -> list[tuple[Point, Point]]:
    """The last point before each spike, and its first: IN_A_ROW points far above those before them and above the
    mean of the run so far.

    `points`: the end of the curve; `count`, `total`: number and sum of the finite values of the whole curve. One
    with fewer than BEFORE points before has no spike."""
    finite = [point for point in points if math.isfinite(point[1])]
    values = [value for _, value, _ in finite]
    spikes, was_above = [], True  # what precedes the first point that can be judged is unknown
    seen, so_far = _head(values, count, total)
    so_far += sum(values[:BEFORE])
    for start in range(BEFORE, len(values) - IN_A_ROW + 1):
        following = min(values[start : start + IN_A_ROW])
        is_above = following > so_far / (seen + start) and following > _bound(values[start - BEFORE : start])
        if is_above and not was_above:
            spikes.append((finite[start - 1], finite[start]))
        was_above = is_above
        so_far += values[start]
    return spikes


def _head(values: Sequence[float], count: int, total: float) -> tuple[int, float]:
    """Number and sum of the values before these; 0 where the sum is lost in a curve that has grown beyond measure."""
    head = total - sum(values)
    is_lost = abs(head) <= PRECISION * sum(map(abs, values))
    return (0, 0.0) if is_lost or count <= len(values) else (count - len(values), head)


def best_step(points: Sequence[Point], limit: int) -> int | None:
    """The step of the best value, where the curve has not improved for `limit` steps since; None where it has.

    Values are trailing means, so that one lucky batch is no improvement that later ones must beat."""
    finite = [point for point in points if math.isfinite(point[1])]
    if not finite or finite[-1][0] - finite[0][0] < 2 * limit:
        return None
    last_step = finite[-1][0]
    width = max(1, sum(1 for step, _, _ in finite if step > last_step - limit) // SMOOTHING)
    smoothed = [
        (fmean(value for _, value, _ in finite[end - width : end]), finite[end - 1][0])
        for end in range(width, len(finite) + 1)
    ]
    _, step = min(smoothed)
    return step if last_step - step >= limit else None


def _bound(values: Sequence[float]) -> float:
    middle = median(values)
    spread = max(1.4826 * median(abs(value - middle) for value in values), 0.01 * abs(middle))
    return max(middle + SPREADS * spread, RATIO * middle)
