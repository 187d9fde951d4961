"""Memory that grows with every step is named; what levels off, is collected or only wanders is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from domain.performance.memory_growth import (
    MOST_SAMPLES,
    Growth,
    MemorySample,
    MemorySamples,
    NodeMemory,
    leak_findings,
    seconds_until_full,
)

MIB, GIB = 2**20, 2**30
HOUR = 720
"""Samples of an hour."""
Curve = Callable[[int, random.Random], float]
"""Bytes at a step of a second."""


def growth(curve: Curve, samples: int = 60, seed: int = 0) -> Growth | None:
    """As judged after so many samples, five seconds and five steps apart."""
    noise, memory = random.Random(seed), MemorySamples()
    for step in range(5, 5 * samples, 5):
        memory.add(MemorySample(step, 1000.0 + step, curve(step, noise)))
    return memory.growth()


def saw_tooth(step: int, noise: random.Random) -> float:
    return GIB + 12 * MIB * (step % 130)


def leak(step: int, noise: random.Random) -> float:
    """12 MiB a step, below what a step needs and gives back."""
    return GIB + 12 * MIB * step + noise.random() * 300 * MIB


WALKS: list[float] = []


def wanders(step: int, noise: random.Random) -> float:
    if step <= 5:
        WALKS.clear()
    WALKS.append((WALKS[-1] if WALKS else GIB) + noise.uniform(-60, 60) * MIB)
    return WALKS[-1]


QUIET: dict[str, Curve] = {
    "level": lambda step, noise: 4 * GIB + noise.random() * 500 * MIB,
    "warm-up": lambda step, noise: 4 * GIB * (1 - math.exp(-step / 20)) + noise.random() * MIB,
    "collected": saw_tooth,
    "levels off slowly": lambda step, noise: 8 * GIB * (1 - math.exp(-step / 200)),
    "grows with the longest batch so far": lambda step, noise: GIB * math.log(1 + step),
    "once an epoch": lambda step, noise: GIB + 100 * MIB * (step // 1200),
    "a few kilobytes a step": lambda step, noise: GIB + 3000 * step,
    "full cache": lambda step, noise: GIB + 12 * MIB * min(step, 180),
}


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_is_measured_by_its_lowest_values(seed: int):
    measured = growth(leak, seed=seed)
    assert measured is not None
    assert measured.bytes_per_step == pytest.approx(12 * MIB, rel=0.1)
    assert measured.bytes_per_s == pytest.approx(12 * MIB, rel=0.1)


def test_a_leak_of_hours_is_measured_with_few_samples():
    measured = growth(leak, samples=5 * MOST_SAMPLES)
    assert measured is not None and measured.bytes_per_step == pytest.approx(12 * MIB, rel=0.02)


@pytest.mark.parametrize("curve", QUIET.values(), ids=QUIET)
def test_unsteady_growth_is_not_named(curve: Curve):
    assert growth(curve, samples=HOUR) is None


def test_memory_that_wanders_is_hardly_ever_taken_for_a_leak():
    judged = [growth(wanders, samples, seed) for seed in range(40) for samples in (40, 100, 300)]
    full = [growth for growth in judged if growth and seconds_until_full([growth], 16 * GIB)]
    assert len(full) <= 1


def test_too_little_is_not_judged():
    assert growth(leak, samples=12) is None


def test_a_forecast_reaches_no_further_than_its_samples_allow():
    measured = growth(leak)
    assert measured is not None
    seconds = seconds_until_full([measured, measured], 24 * GIB)
    assert seconds == pytest.approx(1024, rel=0.1)
    assert seconds_until_full([measured], 1000 * GIB) is None
    assert seconds_until_full([], GIB) is None


def steady(rate: float = 12 * MIB) -> Growth:
    first, last = MemorySample(40, 40.0, GIB), MemorySample(240, 240.0, GIB + 200 * rate)
    return Growth(rate, rate, first, last)


def test_a_finding_names_the_rank_its_growth_and_when_the_memory_is_full():
    memory = NodeMemory(own={3: steady()}, free_bytes=28.125 * GIB)
    (finding,) = leak_findings(memory)
    assert finding.kind == "memory leak"
    assert finding.evidence == (
        "+12 MiB a step on rank 3, 1.0 GiB at step 40 and 3.3 GiB at step 240: "
        "the node's memory is full in about 40 min."
    )
    assert "loss.item()" in finding.fix


def test_the_soonest_comes_first_and_what_fills_the_same_memory_is_added():
    memory = NodeMemory(
        own={0: steady(), 1: steady(MIB)}, workers={0: steady(3 * MIB)}, free_bytes=16 * GIB,
        devices={1: steady()}, free_device_bytes={1: 4 * GIB}, shared=steady(), free_shared_bytes=GIB,
    )  # fmt: skip
    (finding,) = leak_findings(memory)
    shared, device, node = finding.evidence.split(". ")
    assert shared.startswith("+12 MiB a step in /dev/shm") and "is full in about 85 s" in shared
    assert device.startswith("+12 MiB a step on rank 1's GPU")
    assert node.startswith(
        "+12 MiB a step on rank 0 (with rank 0's data-loader workers and rank 1 +16 MiB), 1.0 GiB at step 40"
    )
    assert "persistent_workers=False" in finding.fix


def test_a_cache_of_the_data_set_that_fits_is_no_leak():
    memory = NodeMemory(own={0: steady()}, free_bytes=16 * GIB, first_epoch_ends_at=1000)
    assert leak_findings(memory) == []
    memory.first_epoch_ends_at = 10_000
    assert leak_findings(memory)


def test_unreadable_samples_are_not_forecast():
    assert leak_findings(NodeMemory(own={0: steady()}, devices={0: steady()}, shared=steady())) == []
