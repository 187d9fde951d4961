"""Losses that went wrong are found, and those that are as losses are stay unaccused."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.monitor.losses import ENDS_KEPT, FLAT_POINTS, LossWatch

NAN, INF = math.nan, math.inf


def watch(values, tag="train/loss", source="events", **more) -> LossWatch:
    seen = LossWatch(**more)
    for step, value in enumerate(values, start=1):
        seen.take({tag: [(step, value, 0.0)]}, source)
    return seen


def kinds(seen: LossWatch) -> list[str]:
    return [finding.kind for finding in seen.findings()]


def noise(count: int, mean: float = 2.3, spread: float = 0.1) -> list[float]:
    source = random.Random(3)
    return [source.gauss(mean, spread) for _ in range(count)]


def test_nan_is_told_with_its_first_step_and_the_last_number():
    (finding,) = watch([2.0, 1.5, NAN, NAN]).findings()
    assert finding.kind == "loss is not a number"
    assert finding.evidence == "train/loss is NaN since step 3. The last number was 1.5 at step 2."


def test_infinity_is_called_by_its_name_and_a_loss_that_never_was_a_number():
    assert "train/loss is ∞ since step 2." in watch([2.0, INF, INF]).findings()[0].evidence
    assert "train/loss is −∞ since step 2." in watch([2.0, -INF, -INF]).findings()[0].evidence
    overflowed = watch([2.0, INF, NAN, NAN]).findings()[0].evidence
    assert overflowed == "train/loss is NaN since step 3. The last number was 2 at step 1."
    assert "It was never a number." in watch([NAN, NAN]).findings()[0].evidence


def test_one_bad_point_may_be_a_skipped_step_and_recovery_is_believed():
    assert kinds(watch([2.0, NAN])) == []
    assert kinds(watch([2.0, NAN, NAN, 1.9])) == []


def test_several_losses_are_one_finding_the_first_to_break_speaks():
    seen = watch([1.0, 1.0, 1.0, NAN, NAN], tag="val/loss")
    for step, value in [(1, 1.0), (2, NAN), (3, NAN)]:
        seen.take({"train/loss": [(step, value, 0.0)]}, "events")
    (finding,) = seen.findings()
    assert finding.evidence.startswith("train/loss is NaN since step 2.")
    assert "Others too: val/loss." in finding.evidence


@pytest.mark.parametrize("tag", ["lossy_frames", "closs", "train/lr", "glossary"])
def test_series_that_only_sounds_like_a_loss_is_none(tag: str):
    assert kinds(watch([NAN] * 5, tag=tag)) == []


def test_a_constant_loss_is_told_early_and_a_flat_one_late():
    assert kinds(watch([0.5] * 19)) == []
    assert kinds(watch([0.5] * 20)) == ["loss has not moved"]
    assert kinds(watch(noise(FLAT_POINTS - 1))) == []
    (finding,) = watch(noise(FLAT_POINTS)).findings()
    assert "less than its random variation" in finding.evidence


def test_a_loss_that_falls_slowly_is_not_called_flat():
    falling = [value * (1 - 0.02 * i / 300) for i, value in enumerate(noise(300, spread=0.01))]
    assert kinds(watch(falling)) == []


def test_a_resumed_run_may_be_flat():
    assert kinds(watch(noise(FLAT_POINTS), is_fresh=False)) == []


@pytest.mark.parametrize("tag", ["val/loss", "loss_D", "train/aux_loss", "loss/eval"])
def test_only_the_training_loss_must_move(tag: str):
    assert kinds(watch([0.5] * 100, tag=tag)) == []


@pytest.mark.parametrize("tag", ["loss", "train/loss", "train_loss", "train_loss_step", "loss/train", "Loss/train"])
def test_the_training_loss_goes_by_many_names(tag: str):
    assert kinds(watch([0.5] * 100, tag=tag)) == ["loss has not moved"]


def test_printed_losses_count_only_where_none_is_logged():
    seen = watch([NAN] * 3, tag="loss", source="printed")
    assert seen.findings()[0].evidence.startswith("printed/loss is NaN")
    seen.take({"train/loss": [(1, 2.0, 0.0)]}, "events")
    assert kinds(seen) == []


def test_series_of_the_probe_is_no_loss():
    assert kinds(watch([NAN] * 3, tag="loss", source="probe")) == []


@given(st.lists(st.floats(width=32), max_size=3 * FLAT_POINTS))
def test_it_survives_any_numbers_and_a_restart_and_stays_small(values: list[float]):
    seen = watch(values)
    again = LossWatch.model_validate_json(seen.model_dump_json())
    assert [f.evidence for f in again.findings()] == [f.evidence for f in seen.findings()]
    assert all(len(loss.first) <= ENDS_KEPT >= len(loss.last) for loss in seen.losses.values())


def test_a_training_loss_that_explodes_is_told_other_curves_are_not():
    exploding = [*noise(60, mean=0.1, spread=0.01), *[2598.0] * 3]
    (finding,) = watch(exploding).findings()
    assert finding.kind == "loss diverges"
    assert finding.evidence.startswith("train/loss diverges since step 61: it was about 0.")
    assert kinds(watch(exploding, tag="loss", source="printed")) == ["loss diverges"]
    for tag in ("val/loss", "train/accuracy", "rollout/ep_rew_mean", "value_loss"):
        assert kinds(watch(exploding, tag=tag)) == []


def test_a_loss_beside_rewards_may_rise_as_they_do():
    seen = watch([*noise(60, mean=0.1, spread=0.01), *[2598.0] * 3])
    seen.take({"rollout/ep_rew_mean": [(1, 1.0, 0.0)]}, "events")
    assert kinds(seen) == []


def test_divergence_is_remembered_by_a_restarted_worker():
    seen = watch([*noise(60, mean=0.1, spread=0.01), 2598.0, 2598.0])
    again = LossWatch.model_validate_json(seen.model_dump_json())
    again.take({"train/loss": [(63, 2598.0, 0.0)]}, "events")
    assert kinds(again) == ["loss diverges"]
