"""Estimate when a disk is full, from how fast it filled lately. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

WINDOW_S = 1800.0
LEAST_S = 600.0
"""Samples of a shorter time say nothing."""
PARTS = 3
"""Growth counts only as far as it goes on in each part of the window: a checkpoint that is written now and then, and
replaced by the next one, fills no disk."""
FRESH_S = 120.0


def growth_bytes_per_s(samples: Sequence[tuple[float, float]], now: float) -> float | None:
    """How fast a disk fills in the slowest part of the last half hour, from samples (wall time, bytes used), oldest
    first; None where it does not fill, or the samples are too few, too short or too old to say."""
    recent = [sample for sample in samples if sample[0] >= now - WINDOW_S]
    if not recent or now - recent[-1][0] > FRESH_S or recent[-1][0] - recent[0][0] < LEAST_S:
        return None
    start, length = recent[0][0], (recent[-1][0] - recent[0][0]) / PARTS
    borders = [recent[0]]
    for part in range(1, PARTS):
        borders.append(next(sample for sample in recent if sample[0] >= start + part * length))
    borders.append(recent[-1])
    if any(after[0] - before[0] < length / 2 for before, after in pairwise(borders)):
        return None  # there are gaps
    slowest = min((after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(borders))
    return slowest if slowest > 0 else None
