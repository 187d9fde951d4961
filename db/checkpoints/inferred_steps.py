"""Infer the step of a checkpoint whose name has none: from what the script logged or printed around its saving."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from db.metrics.points import BUCKET_POINTS
from db.models import Chunk
from domain.checkpoints.names import part_name
from domain.points import PackedPoints

READ_EVERY_S = 6.0
"""Longest time after which a printed line is read, in seconds: so much later its point may stand in time."""
MOST_POINTS = 50_000
"""A longer series is read in the level that has at most so many."""
MOST_BETWEEN = 6
"""Points between the one nearest in time and the one that the name's number means; further away it counts epochs."""
EXTREMES = 2
"""Points of a bucket that stay in the level above."""


class LoggedPoints:
    """The steps, values and times of one series, in the order in which they were logged."""

    def __init__(self, session: Session, series_id: int, count: int) -> None:
        level = max(0, math.ceil(math.log(max(1, count) / MOST_POINTS, BUCKET_POINTS / EXTREMES)))
        chunks = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == level).order_by(Chunk.seq)
        packed = [PackedPoints.of_chunk(blob) for blob in session.scalars(chunks)]
        self._steps = np.frombuffer(b"".join(points.steps for points in packed), "<i8")
        self._values = np.frombuffer(b"".join(points.values for points in packed), "<f8")
        self._times = spread(np.frombuffer(b"".join(points.walls for points in packed), "<f8"))

    def by_step(self) -> list[tuple[int, float]]:
        """Each point's step and value, in the order in which they were logged."""
        return list(zip(self._steps.tolist(), self._values.tolist(), strict=True))

    def step_at(self, name: str, written_at: float) -> tuple[int, float] | None:
        """Infer the step of a checkpoint of this name, and how far in seconds its point is from the time of saving.

        The number in the name, if it was logged about then, which is surest (below 0); of a `best` the lowest value;
        otherwise the nearest."""
        if not len(self._steps):
            return None
        away = np.abs(self._times - written_at)
        near = np.flatnonzero(away <= READ_EVERY_S)
        at = len(away) - 1 - int(np.argmin(away[::-1]))
        named = [one for one in near if self._steps[one] in _numbers(name) and abs(one - at) <= MOST_BETWEEN]
        if named:
            return int(self._steps[named[-1]]), -1.0
        if len(near) and "best" in part_name(name).words and np.isfinite(self._values[near]).any():
            at = int(near[np.nanargmin(self._values[near])])
        return int(self._steps[at]), float(away[at])


def spread(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return times that are spread over the time before them where several are equal: lines that were read at once.

    They are as far apart as those of other reads: a script that has ended prints nothing more."""
    if not len(times):
        return times
    times = np.array(np.maximum.accumulate(times), "<f8")  # a clock may have been set back
    _, first, counts = np.unique(times, return_index=True, return_counts=True)
    begins = np.concatenate(([READ_EVERY_S], np.minimum(np.diff(times[first]), READ_EVERY_S)))
    usual = np.median(np.diff(times[first]) / counts[1:]) if len(first) > 1 else READ_EVERY_S
    apart = np.repeat(np.minimum(begins / counts, usual), counts)
    order = np.arange(len(times)) - np.repeat(first, counts)
    printed_at = times - np.repeat(begins, counts) + (order + 0.5) * apart
    return np.array(np.where(np.repeat(counts, counts) > 1, printed_at, times), "<f8")


def infer_step(name: str, written_at: float, series: Sequence[LoggedPoints]) -> int | None:
    """Return the step of the series whose point is nearest to the saving; of several, the first series' counts."""
    steps = [near for points in series if (near := points.step_at(name, written_at)) is not None]
    return min(steps, key=lambda near: near[1])[0] if steps else None


def _numbers(name: str) -> set[int]:
    return {int(number) for number in part_name(name).numbers if len(number) < 18}
