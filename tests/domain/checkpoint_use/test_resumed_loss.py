"""A loss that jumps after a resume is told with its likely cause; noise and losses that fall are not accused."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from domain.checkpoint_use.resumed_loss import KIND, ResumedLoss, resumed_loss_finding
from domain.checkpoint_use.resuming import ResumeConsequence, ResumePlan
from domain.checkpoints.contents import KINDS
from domain.messages import Point

PLAN = ResumePlan("work/last.pt", 100, 1, holds=list(KINDS), is_read=True)


def points(values: Sequence[float], first: int = 1) -> list[Point]:
    return [(first + number, value, float(number)) for number, value in enumerate(values)]


def resumed(before: Sequence[float], after: Sequence[float], first: int = 101, **more: Any) -> ResumedLoss:
    later = points(after, first)
    fields: dict[str, Any] = {"has_same_data": None} | more
    return ResumedLoss("train/loss", points(before), later[:5], later[-5:], len(later), **fields)


def noisy(levels: Sequence[float], spread: float, seed: int = 7) -> list[float]:
    source = random.Random(seed)
    return [level * (1 + source.gauss(0, spread)) for level in levels]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("spread", [0.02, 0.2, 0.6])
@pytest.mark.parametrize(
    "level",
    [lambda step: 1.0, lambda step: 2.3 * math.exp(-step / 60) + 0.1, lambda step: 5.0 / (1 + step / 10)],
    ids=["level", "falling", "falling fast"],
)
def test_noise_and_falling_losses_are_no_jump(level: Any, spread: float, seed: int) -> None:
    curve = noisy([level(step) for step in range(200)], spread, seed)
    for at in (20, 50, 150):
        assert resumed_loss_finding(resumed(curve[:at], curve[at : at + 20]), PLAN) is None


def test_a_jump_is_told_with_both_levels_and_steps() -> None:
    finding = resumed_loss_finding(resumed(noisy([0.5] * 50, 0.1), noisy([2.3] * 5, 0.02)), PLAN)
    assert finding is not None and finding.kind == KIND
    assert finding.evidence.startswith("train/loss is about 2.") and "at steps 101 to 105" in finding.evidence
    assert "from work/last.pt, of step 100; up to there it was about 0." in finding.evidence


@pytest.mark.parametrize(("count", "is_told"), [(12, True), (20, False)])
def test_a_loss_that_is_back_is_no_longer_told(count: int, is_told: bool) -> None:
    after = [2.3, 2.0, 1.8, 1.5, 1.2, *[0.5] * (count - 5)]
    finding = resumed_loss_finding(resumed(noisy([0.5] * 50, 0.1), after), PLAN)
    assert (finding is not None) == is_told


def test_a_script_that_began_again_is_told_even_when_its_loss_is_back() -> None:
    after = [2.3, 2.0, 1.8, 1.5, 1.2, *[0.5] * 20]
    assert resumed_loss_finding(resumed([0.5] * 50, after, first=1), PLAN) is not None


@pytest.mark.parametrize(
    ("before", "after"),
    [([0.5] * 9, [2.3] * 5), ([0.5] * 50, [2.3] * 4), ([0.5] * 50, [math.nan] * 5), ([0.5] * 50, [0.1] * 5)],
    ids=["too little before", "too little after", "not finite", "lower"],
)
def test_too_little_and_what_is_no_rise_is_not_judged(before: list[float], after: list[float]) -> None:
    assert resumed_loss_finding(resumed(before, after), PLAN) is None


RATE = ResumeConsequence("scaled_lr", "Learning rate after scaling", 0.1, 0.4, "")
BATCH = ResumeConsequence("global_batch_size", "Global batch", 32, 64, "A step averages over another number.")
CAUSES = [
    (PLAN, {"first": 1}, "did not load the checkpoint"),
    (replace(PLAN, holds=["model"]), {}, "holds no optimizer"),
    (replace(PLAN, differs=[BATCH, RATE]), {}, "The learning rate is 0.4; the checkpoint was written with 0.1."),
    (replace(PLAN, differs=[BATCH]), {}, "Global batch changed"),
    (PLAN, {"has_same_data": True}, "The data begin with the samples"),
    (PLAN, {"has_same_data": False}, "Nothing that is known"),
    (replace(PLAN, holds=[], is_read=False), {}, "Nothing that is known"),
]


@pytest.mark.parametrize(("plan", "more", "cause"), CAUSES, ids=[cause[:20] for *_, cause in CAUSES])
def test_the_likely_cause_is_named(plan: ResumePlan, more: dict[str, Any], cause: str) -> None:
    finding = resumed_loss_finding(resumed([0.5] * 50, [2.3] * 5, **more), plan)
    assert finding is not None and cause in finding.meaning and finding.fix
