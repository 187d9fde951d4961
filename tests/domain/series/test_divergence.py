"""A training loss that diverges is noticed with its step; noise, warm-up, spikes and harder data are not accused."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from domain.series.divergence import Divergence, evidence_of, since


def taken(values: Sequence[float]) -> Divergence:
    loss = Divergence()
    for step, value in enumerate(values):
        loss.take(10 * step, value)
    return loss


def noisy(levels: Sequence[float], spread: float = 0.1) -> list[float]:
    source = random.Random(7)
    return [level * (1 + source.gauss(0, spread)) for level in levels]


FALLING = [2.3 * math.exp(-step / 30) + 0.1 for step in range(150)]


@pytest.mark.parametrize(
    ("values", "step"),
    [
        pytest.param([*noisy(FALLING), *noisy([2598.0] * 4)], 1500, id="explodes"),
        pytest.param([*noisy(FALLING), *noisy([2.303] * 12, 0.01)], 1500, id="back to chance"),
        pytest.param([*noisy([0.1] * 20), 40.0, 900.0, 2598.0, 1e6], 200, id="that had not fallen"),
        pytest.param([0.5, 0.4, 0.3, 0.2, 0.1, 2598.0, 2598.0, 2598.0], 50, id="of a few points"),
    ],
)
def test_divergence_is_told_with_its_first_step(values: list[float], step: int) -> None:
    loss = taken(values)
    assert loss.is_certain
    evidence = evidence_of("train/loss", loss)
    assert evidence.startswith(f"train/loss diverges since step {step}: it was about 0.")
    assert since(evidence) == step


def test_a_loss_that_grows_by_a_constant_factor_diverges() -> None:
    loss = taken([0.1 * 1.5**step for step in range(40)])
    assert loss.is_certain and loss.since is not None and loss.since <= 200


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(noisy([1.0] * 500, 0.8), id="noise"),
        pytest.param(noisy(FALLING, 0.5), id="noisy and falling"),
        pytest.param(noisy([0.02 + 0.01 * step for step in range(500)]), id="warmed up"),
        pytest.param([*noisy(FALLING), 50.0, 60.0, *noisy([0.1] * 50)], id="a spike"),
        pytest.param([*noisy(FALLING), *noisy([0.6] * 100)], id="harder data"),
        pytest.param(noisy([math.sin(step / 9) for step in range(400)]), id="around zero"),
        pytest.param(noisy([1 - math.exp(-step / 50) for step in range(300)]), id="an accuracy"),
        pytest.param([0.0] * 300, id="zero"),
        pytest.param([math.nan, math.inf] * 50, id="no numbers"),
        pytest.param([], id="nothing"),
    ],
)
def test_other_curves_do_not_diverge(values: list[float]) -> None:
    assert not any(taken(values[:end]).is_certain for end in range(0, len(values) + 1, 7))
    assert not taken(values).is_certain


def test_a_loss_that_comes_back_for_good_is_no_finding_any_more() -> None:
    gone = [*noisy(FALLING), *[2598.0] * 5]
    assert taken([*gone, 0.1, 0.1]).is_certain
    assert not taken([*gone, *[0.1] * 10]).is_certain


def test_another_sentence_names_no_step() -> None:
    assert since("train/loss is NaN since step 3.") is None
