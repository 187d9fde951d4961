"""Points as columns: unpacked, cut and thinned without a Python object per point."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return the points whose steps are within the limits, both included."""
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
    """Return the places of at most `most` of the values, in buckets of a power of two."""
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


def goes_back(source: str) -> bool:
    """Whether a later life of the script replaces points of this source; samples of hardware it does not."""
    return source in SCRIPT_KINDS
