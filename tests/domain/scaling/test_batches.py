"""Several global batches of a study: where throughput is flat, where the loss is worse, which one to choose."""

from __future__ import annotations

import math

import pytest

from domain.scaling.batches import rule_in_words, scaled_rate
from domain.scaling.judgement import Judgement, judge
from domain.scaling.measurement import RunFigures, Window, mean_loss
from domain.scaling.points import MeasuredPoint
from domain.spec import RunSpec


def point(
    devices: int, batch: int, samples_per_s: float, *losses: float, name: str = "train/loss", **more
) -> MeasuredPoint:
    """A size whose runs reached these losses; without any, a run that reports none."""
    window = Window(10, 10 * batch / samples_per_s)
    runs = [RunFigures([window] * 9, batch, losses={name: loss}) for loss in losses]
    more = {"figures": runs or [RunFigures([window] * 9, batch)], "lr": 0.1, "samples": 12000} | more
    return MeasuredPoint(devices, 1, run=f"{devices}x{batch}", global_batch_size=batch, **more)


def study(*losses: tuple[float, ...], flat: bool = True) -> Judgement:
    """256, 512 and 1024 on 1 and 2 GPUs, with the losses of each batch's runs on 2."""
    top = 1050 if flat else 1500
    one = [point(1, 256, 600), point(1, 512, 700), point(1, 1024, 710)]
    two = [
        point(2, batch, rate, *of) for batch, rate, of in zip((256, 512, 1024), (800, 1000, top), losses, strict=False)
    ]
    return judge([*one, *two], "cuda", is_ended=True)


def test_each_global_batch_has_its_own_curve() -> None:
    judged = study((2.0,), (2.0,), (2.0,))
    assert [round(one.speedup, 3) for one in judged.points] == [1, 1, 1, 1.333, 1.429, 1.479]
    assert [one.global_batch_size for one in judged.points] == [256, 512, 1024] * 2


def test_throughput_is_flat_from_the_batch_over_which_larger_ones_gain_less_than_a_tenth() -> None:
    judged = study((2.0,), (2.02,), (2.05,))
    assert judged.batches.flat_from == {1: 512, 2: 512}
    assert judged.batches.best == 512
    assert judged.verdict.startswith(
        "On 2 GPUs global batches larger than 512 gain less than 10% throughput; after 12 k samples train/loss is "
        "at most 5% higher with any measured one: choose 512. "
        "With 512: 2 GPUs (1.4x, 71%) gain 43% more for twice the cost."
    )
    growing = study((2.0,), (2.02,), (2.05,), flat=False)
    assert growing.batches.flat_from == {1: 512, 2: None} and growing.batches.best == 1024
    assert "still grows with the largest global batch, 1\u202f024 (+50%)" in growing.verdict


def test_a_batch_that_costs_loss_is_not_chosen() -> None:
    judged = study((2.0, 2.02), (2.3, 2.31), (2.9, 2.95))
    assert [one.is_worse for one in judged.batches.batches] == [False, True, True]
    assert judged.batches.batches[1].loss_change == pytest.approx(2.305 / 2.01 - 1)
    assert "train/loss is 15% higher with 512: choose 256." in judged.verdict


@pytest.mark.parametrize(
    ("losses", "worse"),
    [
        (((2.0, 2.4), (2.0, 2.5), (2.3, 2.4)), [False, False, False]),
        (((2.0,), (1.5,), (1.7,)), [False, False, True]),
        (((2.0,), (1.9,), (math.inf,)), [False, False, True]),
        (((-1.0,), (-1.01,), (-0.5,)), [False, False, True]),
    ],
    ids=["within the differences of runs", "than the lowest so far", "diverged", "below zero"],
)
def test_a_loss_is_worse_by_more_than_five_per_cent_and_than_runs_differ(losses, worse) -> None:
    assert [one.is_worse for one in study(*losses).batches.batches] == worse


def test_a_diverged_batch_is_said_and_a_loss_that_not_every_batch_has_is_not_compared() -> None:
    assert "train/loss is not finite with 1\u202f024: choose 512." in study((2.0,), (1.9,), (math.inf,)).verdict
    assert study((2.0,), (1.9,)).verdict.startswith(
        "On 2 GPUs throughput still grows with the largest global batch, 512 (+25%); "
        "the runs report no loss to compare: choose 512."
    )
    both = [point(1, batch, 500, 1.0, name="val/loss") for batch in (2, 4)]
    assert judge(both, "cpu", is_ended=True).batches.loss_name == "val/loss"


def test_one_batch_alone_is_an_ordinary_study_and_a_single_measured_one_says_so() -> None:
    alone = judge([point(1, 256, 600), point(2, 256, 1100)], "cuda", is_ended=True)
    assert alone.batches is None and alone.verdict.startswith("2 GPUs: 1.8x, 92%")
    failed = point(1, 512, 1, figures=(), problem="run f failed: out of memory")
    verdict = judge([point(1, 256, 600), failed], "cuda", is_ended=True).verdict
    assert verdict == (
        "Comparing global batches needs a second one measured on the same devices. "
        "1 GPU at a global batch of 512: run f failed: out of memory."
    )


def test_a_script_that_takes_another_batch_is_told() -> None:
    own = [RunFigures([Window(10, 1.0)] * 9, 64.0)]
    judged = judge([point(1, 256, 600), point(1, 512, 1, figures=own)], "cpu", is_ended=True)
    assert "A step had 64 samples where the study gave it 512" in judged.verdict


def test_the_learning_rate_follows_the_global_batch_not_the_ranks() -> None:
    spec = RunSpec(target="t", lr=0.1, batch_size=32, accumulate=2, lr_scaling="linear")
    assert [scaled_rate(spec, batch, (64, 256)) for batch in (64, 256)] == pytest.approx([0.1, 0.4])
    assert rule_in_words(spec, (64, 256), is_given=True) == "linear, 0.1 for 64"
    root = spec.model_copy(update={"lr_scaling": "sqrt", "batch_size": None})
    assert scaled_rate(root, 512, (128, 512)) == pytest.approx(0.2)
    assert rule_in_words(spec.model_copy(update={"lr_scaling": "none"}), (64,), is_given=True) == "not scaled"
    assert rule_in_words(spec, (64,), is_given=False) == "the script's own"
    assert scaled_rate(spec.model_copy(update={"lr": None}), 64, (64,)) is None


def test_the_loss_reached_is_the_mean_of_the_last_ones() -> None:
    assert (mean_loss([]), mean_loss([1.0, 3.0]), mean_loss([1.0, math.nan])) == (None, 2.0, math.inf)
