"""Spikes and standstills in curves: those that people would see, and none in curves that only make noise."""

from __future__ import annotations

import math
import random

import pytest

from domain.alerts.judgement import BEFORE, best_step, spikes_in
from domain.messages import Point


def points(values: list[float], every: int = 10) -> list[Point]:
    return [(n * every, value, float(n)) for n, value in enumerate(values)]


def falling(seed: int, count: int = 600, noise: float = 0.2) -> list[float]:
    """A loss as scripts log it: falling, with heavy-tailed noise in proportion to its level."""
    draw = random.Random(seed)
    return [(0.05 + 2.3 * math.exp(-n / 120)) * draw.lognormvariate(0, noise) for n in range(count)]


def spike_steps(curve: list[Point], before: int = 0, mean: float = 0.0) -> list[int]:
    """The first steps of spikes, where the curve follows so many points of that mean."""
    values = [value for _, value, _ in curve if math.isfinite(value)]
    spikes = spikes_in(curve, len(values) + before, sum(values) + before * mean)
    return [first[0] for _, first in spikes]


def spikes_of(values: list[float]) -> list[int]:
    return spike_steps(points(values))


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2, 0.5])
def test_curves_that_only_make_noise_have_no_spike(noise: float) -> None:
    assert [seed for seed in range(10) if spikes_of(falling(seed, noise=noise))] == []
    rng = random.Random(1)
    flat = [0.7 + rng.gauss(0, noise / 5) for _ in range(500)]
    assert spikes_of(flat) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_spike_is_found_once_at_its_first_step(seed: int) -> None:
    values = falling(seed)
    for n in range(400, 420):
        values[n] = 3.0 + n / 100
    assert spikes_of(values) == [4000]
    window = points(values)[360 - BEFORE :]  # later, when less of the curve before it is read
    assert spike_steps(window, 310, 0.5) == [4000]
    (spike,) = spikes_in(window, len(window), sum(value for _, value, _ in window))
    assert [point[0] for point in spike] == [3990, 4000], "the last point before it, and its first"
    assert spike_steps(window, 310, 20.0) == [], "the run was usually higher"
    assert 4000 not in spike_steps(points(values)[400 - BEFORE :], 350, 0.5), "what came before is unknown"


@pytest.mark.parametrize("before", [0, 1000])
def test_a_loss_that_grows_without_end_is_found_where_it_began(before: int) -> None:
    values = [*falling(1)[:200], *(4.0 * 2.0**n for n in range(150))]
    assert spike_steps(points(values), before, 0.5) == [2000]


def test_one_hard_batch_a_nan_and_the_start_are_no_spike() -> None:
    values = falling(1)
    values[400] = values[402] = 50.0
    values[450] = math.nan
    assert spikes_of([v for v in values if math.isfinite(v)]) == []
    assert spike_steps(points(values)) == []
    assert spikes_of([0.1] * (BEFORE - 1) + [9.0] * 20) == []
    assert spike_steps([]) == []


def test_a_curve_that_falls_improves_and_one_that_stays_does_not() -> None:
    for seed in range(10):
        values = [2.0 - n / 600 + random.Random(seed * 1000 + n).gauss(0, 0.05) for n in range(600)]
        assert best_step(points(values), 1000) is None
        assert best_step(points([*values[:300], *([values[299] + 0.5] * 300)]), 1000) is not None
    falling_then_rising = [1.0 - n / 400 for n in range(300)] + [0.25 + n / 400 for n in range(100)]
    assert best_step(points(falling_then_rising), 900) is not None
    assert best_step(points(falling_then_rising), 1100) is None
    assert best_step([], 5) is None and best_step(points([1.0] * 10), 60) is None, "too short to say"
    validation = [(1000, 0.9, 0.0), (2000, 0.5, 0.0), (3000, 0.6, 0.0), (4000, 0.7, 0.0)]
    assert (best_step(validation, 1500), best_step(validation, 2500)) == (2000, None)


def test_one_lucky_batch_is_no_best_value() -> None:
    values = [2.0 - n / 600 for n in range(600)]
    values[200] = 0.9
    assert best_step(points(values), 1000) is None
