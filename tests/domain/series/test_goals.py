"""Which way a series should go is judged by its name, and only where the name says it."""

from __future__ import annotations

import pytest

from domain.series import goals
from domain.series.goals import best, goal


@pytest.mark.parametrize(
    "name", ["train/loss", "val_loss", "evalLoss", "printed/loss", "eval/word_error", "perplexity", "ppl"]
)
def test_losses_errors_and_perplexities_should_fall(name):
    assert goal(name) == "min" and best(name, [2.0, 1.0]) == 1.0


@pytest.mark.parametrize("name", ["val/accuracy", "eval_acc", "top1", "valAccuracy", "eval/rougeL", "test/mAP", "f1"])
def test_accuracies_should_rise(name):
    assert goal(name) == "max" and best(name, [2.0, 1.0]) == 2.0


@pytest.mark.parametrize("name", ["train/lr", "lossless", "train/grad_norm", "samples_per_s", "mapping"])
def test_other_names_say_nothing(name):
    assert goal(name) is None and best(name, [1.0]) is None


def test_nothing_is_the_best_of_no_values():
    assert best("loss", []) is None


def test_the_main_metric_is_a_validation_loss_where_there_is_one() -> None:
    assert goals.main_metric(["train/lr", "train/loss", "val/acc", "val/loss"]) == "val/loss"
    assert goals.main_metric(["train/loss", "val/acc"]) == "val/acc"
    assert goals.main_metric(["train/loss", "train/acc", "lr"]) == "train/loss"
    assert goals.main_metric(["train/lr", "gpu/power"]) is None is goals.main_metric([])


def test_better_is_lower_or_higher_by_the_name() -> None:
    assert goals.better_percent("val/loss", 0.9, 1.0) == pytest.approx(10)
    assert goals.better_percent("val/acc", 0.9, 1.0) == pytest.approx(-10)
    assert goals.better_percent("lr", 0.9, 1.0) is None is goals.better_percent("loss", 1.0, 0.0)
    assert goals.change_percent(1.0, -2.0) == 150 and goals.change_percent(None, 1.0) is None
