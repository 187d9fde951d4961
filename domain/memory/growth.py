"""Find memory that grows with every step, from samples. Pure.

Only growth that is as steady at the end as at the beginning counts: buffers that fill, caches that level off and
garbage that is collected now and then do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

WARM_UP_STEPS = 10
WARM_UP_S = 30.0
"""Libraries, workers and buffers take their memory in these."""
MOST_SAMPLES = 512
BUCKETS = 8
FEWEST_SAMPLES = 3 * BUCKETS
FEWEST_STEPS = 2 * BUCKETS
LEAST_GROWTH_BYTES = 64 * 2**20
LARGEST_DEVIATION = 0.1
"""Of the lowest values from a straight line, as a share of the growth."""
STEADY_RATES = (0.75, 1.5)
"""Range of the rate in the last third over the rate in the first."""
FORECAST_FACTOR = 20
"""A forecast reaches at most so many times as far as the samples it is made from."""


@dataclass(frozen=True)
class MemorySample:
    """Bytes in use at a step and at a time in seconds."""

    step: int
    at: float
    used_bytes: float


@dataclass(frozen=True)
class Growth:
    """Steady growth of memory."""

    bytes_per_step: float
    bytes_per_s: float
    first: MemorySample
    last: MemorySample


class MemorySamples:
    """Samples of one kind of memory after its warm-up; the older they are, the fewer are kept."""

    def __init__(self) -> None:
        self._begin: MemorySample | None = None
        self._samples: list[MemorySample] = []

    def add(self, sample: MemorySample) -> None:
        """Add a sample; those before the first step and of the warm-up do not count."""
        if sample.step <= 0:
            return
        self._begin = self._begin or sample
        if sample.step - self._begin.step < WARM_UP_STEPS or sample.at - self._begin.at < WARM_UP_S:
            return
        self._samples.append(sample)
        if len(self._samples) > MOST_SAMPLES:
            self._samples = [_lowest(self._samples[at : at + 2]) for at in range(0, len(self._samples), 2)]

    def growth(self) -> Growth | None:
        """Return the growth over all samples; None where it is not steady or too small to be sure."""
        return steady_growth(self._samples)


def steady_growth(samples: Sequence[MemorySample]) -> Growth | None:
    """Return the steady growth of the lowest values; None where there is none, or too little to be sure."""
    if len(samples) < FEWEST_SAMPLES or samples[-1].step - samples[0].step < FEWEST_STEPS:
        return None
    bounds = [len(samples) * number // BUCKETS for number in range(BUCKETS + 1)]
    lowest = [_lowest(samples[begin:end]) for begin, end in pairwise(bounds)]
    grown = lowest[-1].used_bytes - lowest[0].used_bytes
    is_rising = all(after.used_bytes > before.used_bytes for before, after in pairwise(lowest))
    if not is_rising or grown < LEAST_GROWTH_BYTES or not _is_steady(lowest, grown):
        return None
    per_s = grown / (lowest[-1].at - lowest[0].at)
    return Growth(_rate(lowest), per_s, lowest[0], lowest[-1])


def seconds_until_full(growths: Sequence[Growth], free_bytes: float) -> float | None:
    """Return after how many seconds all growths together fill `free_bytes`; None where that is too far ahead."""
    total = sum(growth.bytes_per_s for growth in growths)
    if total <= 0:
        return None
    remaining_s = max(0.0, free_bytes) / total
    observed_s = max(growth.last.at - growth.first.at for growth in growths)
    return remaining_s if remaining_s <= FORECAST_FACTOR * observed_s else None


def _is_steady(lowest: Sequence[MemorySample], grown: float) -> bool:
    """Whether the values lie on a line, and the last third rises as fast as the first."""
    if any(after.step == before.step for before, after in pairwise(lowest)):
        return False
    rate, third = _rate(lowest), max(2, len(lowest) // 3 + 1)
    offset = median(sample.used_bytes - rate * sample.step for sample in lowest)
    deviation = max(abs(sample.used_bytes - rate * sample.step - offset) for sample in lowest)
    slowest, fastest = STEADY_RATES
    return (
        deviation <= LARGEST_DEVIATION * grown
        and slowest <= _rate(lowest[-third:]) / _rate(lowest[:third]) <= fastest
    )


def _rate(samples: Sequence[MemorySample]) -> float:
    """Bytes a step: the median over all pairs of samples (Theil and Sen)."""
    return median(
        (after.used_bytes - before.used_bytes) / (after.step - before.step)
        for before, after in combinations(samples, 2)
    )


def _lowest(samples: Sequence[MemorySample]) -> MemorySample:
    return min(samples, key=lambda sample: sample.used_bytes)
