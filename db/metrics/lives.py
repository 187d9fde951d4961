"""One value a step: where a script goes back to an earlier step, its later life wins from its first step on.

Points stand in the order they came, so no mark of a new life is needed: a point is replaced by any later one of the
same or a lower step. Two neighbours of one moment whose steps are swapped, as several threads write them, both count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from db.metrics.columns import Columns
from domain.messages import SCRIPT_KINDS, Point

SWAPPED_WITHIN_S = 1.0
"""Seconds between two neighbours that are out of order; a script that starts again takes longer."""

ROUNDED_FROM = 2**53
"""From this step on, columns hold neighbouring steps as equal numbers."""


def goes_back(source: str) -> bool:
    """Whether series of this source have one value a step; samples of hardware have many."""
    return source in SCRIPT_KINDS


def counting_columns(columns: Columns) -> Columns:
    """Return the points that count, by ascending step."""
    steps = columns[0]
    rounded = (steps[1:] == steps[:-1]) & (steps[1:] >= ROUNDED_FROM)
    if bool((rounded | (steps[1:] > steps[:-1])).all()):
        return columns
    kept = columns[:, _counts(steps, columns[2])]
    return kept[:, np.argsort(kept[0], kind="stable")]


def counting_points(points: Sequence[Point]) -> list[Point]:
    """Return the points that count, by ascending step."""
    if all(earlier[0] < later[0] for earlier, later in pairwise(points)):
        return list(points)
    steps, walls = np.array([p[0] for p in points], np.int64), np.array([p[2] for p in points])
    kept = [point for point, counts in zip(points, _counts(steps, walls), strict=True) if counts]
    return sorted(kept, key=lambda point: point[0])


def counting_chunks(blobs: Sequence[bytes], floor: float) -> list[bytes]:
    """Return packed chunks of the points that count, if the lowest step of all later chunks is `floor`."""
    columns = [np.concatenate([np.frombuffer(blob, kind).reshape(3, -1)[at] for blob in blobs])
               for at, kind in enumerate(("<i8", "<f8", "<f8"))]  # fmt: skip
    counts = _counts(columns[0], columns[2]) & (columns[0] < floor)
    return list(blobs) if bool(counts.all()) else [b"".join(column[counts].tobytes() for column in columns)]


def steps_back(
    first_step: int, last: tuple[int, float], count: int, points: Sequence[Point]
) -> tuple[list[tuple[int, int]], int]:
    """Return where a series goes back with these points, farther than a swap of neighbours, and its last life's end.

    `first_step`, `last` (step and wall time) and `count` are of its points before them; each going back is (from step,
    to step)."""
    backs, (reached, reached_at) = list[tuple[int, int]](), last
    for added, (step, _, wall) in enumerate(points):
        spacing = max(1.0, (reached - first_step) / max(1, count + added - 1))
        if step < reached - spacing or (step < reached and wall - reached_at >= SWAPPED_WITHIN_S):
            backs.append((reached, step))
            reached = step
        if step >= reached:
            reached, reached_at = step, wall
    return backs, reached


def _counts(steps: NDArray[np.float64] | NDArray[np.int64], walls: NDArray[np.float64]) -> NDArray[np.bool_]:
    lowest_from = np.minimum.accumulate(steps[::-1])[::-1]
    counts = np.ones(len(steps), dtype=bool)
    counts[:-1] = steps[:-1] < lowest_from[1:]
    swapped = (steps[:-2] > steps[1:-1]) & (steps[:-2] < lowest_from[2:])
    counts[:-2] |= swapped & (np.abs(walls[1:-1] - walls[:-2]) < SWAPPED_WITHIN_S)
    return counts
