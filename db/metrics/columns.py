"""Points as columns: unpacked, cut and thinned without a Python object per point."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from domain.messages import SCRIPT_KINDS, Point

Columns: TypeAlias = NDArray[np.float64]
"""Shape (3, points): steps, values and wall times in seconds."""
NO_POINTS: Columns = np.empty((3, 0))
SMALLEST_BUCKET = 4


def unpacked(blobs: Sequence[bytes]) -> Columns:
    """Return the points of packed chunks, in the order of the chunks (the inverse of `points.pack`)."""
    if not blobs:
        return NO_POINTS
    joined = np.concatenate([np.frombuffer(blob, "<f8").reshape(3, -1) for blob in blobs], axis=1)
    joined[0] = joined[0].view("<i8")
    return joined


def as_points(columns: Columns) -> list[Point]:
    """Return the points one by one; a step beyond 2**53 is rounded, as JavaScript would."""
    steps, values, walls = columns
    return list(zip(map(int, steps.tolist()), values.tolist(), walls.tolist(), strict=True))


def within(columns: Columns, first_step: float | None, last_step: float | None) -> Columns:
    """Return the points whose steps lie within the limits, both included."""
    steps = columns[0]
    inside = np.ones(steps.shape, dtype=bool)
    if first_step is not None:
        inside &= steps >= first_step
    if last_step is not None:
        inside &= steps <= last_step
    return columns if bool(inside.all()) else columns[:, inside]


def thinned_each(series: Sequence[Columns], most: int) -> list[Columns]:
    """Return at most `most` points of each: of each bucket the lowest, the highest and the first not finite."""
    places = picked_each([columns[1] for columns in series], most)
    return [columns[:, own] for columns, own in zip(series, places, strict=True)]


def picked(values: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Return where at most `most` of the values stand, in buckets of a power of two."""
    return picked_each([values], most)[0]


def picked_each(series: Sequence[NDArray[np.float64]], most: int) -> list[NDArray[np.intp]]:
    """Return what `picked` returns for each of the series; numpy is called for all of them at once."""
    places = [np.arange(len(values)) for values in series]
    bucket = _first_bucket(min((len(values) for values in series if len(values) > most), default=0), most)
    while long := [at for at, values in enumerate(series) if len(places[at]) > most and bucket < 4 * len(values)]:
        chosen = _extremes_each([series[at] for at in long], bucket)
        for at, own in zip(long, chosen, strict=True):
            places[at] = own
        bucket *= 2
    return places


def _first_bucket(count: int, most: int) -> int:
    """The smallest power of two with at most `most` buckets: of each at least one value stays."""
    return max(SMALLEST_BUCKET, 1 << (max(0, count - 1) // max(1, most)).bit_length())


def _extremes_each(series: Sequence[NDArray[np.float64]], bucket: int) -> list[NDArray[np.intp]]:
    """Return what `extremes` returns for each: side by side, each from the beginning of a bucket."""
    ends = np.cumsum([-(-len(values) // bucket) * bucket for values in series])
    starts = [0, *ends[:-1]]
    chosen = extremes(np.concatenate([_filled_up(values, bucket) for values in series]), bucket)
    parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    own = zip(parts, starts, series, strict=True)
    return [part[part < start + len(values)] - start for part, start, values in own]


def extremes(values: NDArray[np.float64], bucket: int) -> NDArray[np.intp]:
    """Return where the lowest, the highest and the first value that is not finite of each bucket stand, in order."""
    table = _filled_up(values, bucket).reshape(-1, bucket)
    starts = np.arange(len(table)) * bucket
    finite = np.isfinite(table)
    if finite.all():
        chosen = np.concatenate([starts + table.argmin(axis=1), starts + table.argmax(axis=1)])
    else:
        has_number, has_gap = finite.any(axis=1), ~finite.all(axis=1)
        lowest = starts + np.where(finite, table, np.inf).argmin(axis=1)
        highest = starts + np.where(finite, table, -np.inf).argmax(axis=1)
        gaps = (starts + finite.argmin(axis=1))[has_gap]
        chosen = np.concatenate([lowest[has_number], highest[has_number], gaps])
    chosen.sort()
    return chosen[np.diff(chosen, prepend=-1) > 0]


def _filled_up(values: NDArray[np.float64], bucket: int) -> NDArray[np.float64]:
    """Repeat the last value until the last bucket is full: of equal values the first is chosen."""
    missing = -len(values) % bucket
    return np.concatenate([values, np.repeat(values[-1:], missing)]) if missing else values


# One value a step: where a script goes back to an earlier step, its later life wins from its first step on.
#
# Points stand in the order they came, so no mark of a new life is needed: a point is replaced by any later one of the
# same or a lower step. Two neighbours of one moment whose steps are swapped, as several threads write them, both count.

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
    counting = columns[:, _counts(steps, columns[2])]
    return counting[:, np.argsort(counting[0], kind="stable")]


def counting_points(points: Sequence[Point]) -> list[Point]:
    """Return the points that count, by ascending step."""
    if all(earlier[0] < later[0] for earlier, later in pairwise(points)):
        return list(points)
    steps, walls = np.array([p[0] for p in points], np.int64), np.array([p[2] for p in points])
    counting = [point for point, counts in zip(points, _counts(steps, walls), strict=True) if counts]
    return sorted(counting, key=lambda point: point[0])


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
