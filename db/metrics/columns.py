"""Points as columns: unpacked, cut and thinned without a Python object per point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from domain.messages import Point

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
    joined[2] = _finite_walls(joined[2])
    return joined


def as_points(columns: Columns) -> list[Point]:
    """Return them one by one; a step beyond 2**53 is rounded."""
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


def thinned(columns: Columns, most: int) -> Columns:
    """Return at most `most` points: of each bucket the lowest, the highest and the first that is not finite."""
    return columns[:, picked(columns[1], most)]


def picked(values: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Return where at most `most` of the values stand, in buckets of a power of two."""
    return picked_each([values], most)[0]


def picked_each(series: Sequence[NDArray[np.float64]], most: int) -> list[NDArray[np.intp]]:
    """Return what `picked` returns for each of the series; numpy is called for all of them at once."""
    places = [np.arange(len(values)) for values in series]
    bucket = SMALLEST_BUCKET
    while long := [
        at for at, values in enumerate(series) if len(places[at]) > most and bucket < 4 * len(values)
    ]:
        chosen = _extremes_each([series[at] for at in long], bucket)
        for at, own in zip(long, chosen, strict=True):
            places[at] = own
        bucket *= 2
    return places


def _extremes_each(series: Sequence[NDArray[np.float64]], bucket: int) -> list[NDArray[np.intp]]:
    """Return what `extremes` returns for each: side by side, each from the beginning of a bucket."""
    ends = np.cumsum([-(-len(values) // bucket) * bucket for values in series])
    starts = [0, *ends[:-1]]
    joined = np.full(ends[-1], np.nan)
    for start, values in zip(starts, series, strict=True):
        joined[start : start + len(values)] = values
    chosen = extremes(joined, bucket)
    parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    own = zip(parts, starts, series, strict=True)
    return [part[part < start + len(values)] - start for part, start, values in own]


def extremes(values: NDArray[np.float64], bucket: int) -> NDArray[np.intp]:
    """Return where the lowest, the highest and the first value that is not finite of each bucket stand, in order."""
    rows = -(-len(values) // bucket)
    padded = np.full(rows * bucket, np.nan)
    padded[: len(values)] = values
    table = padded.reshape(rows, bucket)
    finite = np.isfinite(table)
    starts = np.arange(rows) * bucket
    has_number, has_gap = finite.any(axis=1), ~finite.all(axis=1)
    lowest = starts + np.where(finite, table, np.inf).argmin(axis=1)
    highest = starts + np.where(finite, table, -np.inf).argmax(axis=1)
    gaps = (starts + finite.argmin(axis=1))[has_gap]
    chosen = np.concatenate([lowest[has_number], highest[has_number], gaps[gaps < len(values)]])
    chosen.sort()
    return chosen[np.diff(chosen, prepend=-1) > 0]


def _finite_walls(walls: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace wall times that are no number, which older versions stored, by the previous finite one."""
    finite = np.isfinite(walls)
    if finite.all():
        return walls
    last = np.maximum.accumulate(np.where(finite, np.arange(len(walls)), -1))
    first = walls[finite][0] if finite.any() else 0.0
    return np.where(last < 0, first, walls[np.maximum(last, 0)])
