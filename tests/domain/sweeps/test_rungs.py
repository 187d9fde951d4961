"""Early stopping against naive evaluators: who passes a rung, and which sweep follows from it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.messages import State
from domain.studies import StudyAction, Trial
from domain.sweeps import (
    SweepPlan,
    SweptParameter,
    next_actions,
    passes,
    pruned_message,
    saved_in_words,
)

VALUES = st.lists(st.none() | st.sampled_from([-1.0, 0.0, 0.5, 0.5001, 2.0]), min_size=1, max_size=14)
GOALS = st.sampled_from(["min", "max"])


def plan(early_stop: str = "asha", trials: int = 3, **more) -> SweepPlan:
    parameters = {"lr": SweptParameter(values=[*range(trials)])}
    more = {"first_rung": 100} | more
    return SweepPlan(parameters=parameters, metric="val/loss", early_stop=early_stop, **more)


def better(goal: str, one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return other is None and one is not None
    return one < other if goal == "min" else one > other


@given(VALUES, GOALS)
def test_a_trial_passes_with_fewer_better_ones_than_a_third(values: list[float | None], goal: str) -> None:
    sweep = plan(goal=goal)
    for number, value in enumerate(values):
        ahead = sum(better(goal, other, value) for other in values)
        expected = value is not None and ahead < max(1, len(values) // 3)
        assert passes(sweep, dict(enumerate(values)), number) == expected


@given(VALUES, GOALS)
def test_a_trial_passes_the_median_unless_it_is_worse(values: list[float | None], goal: str) -> None:
    sweep = plan("median", goal=goal)
    for number, value in enumerate(values):
        others = sorted(
            (math.inf if one is None else one if goal == "min" else -one)
            for at, one in enumerate(values)
            if at != number
        )
        expected = value is not None
        if value is not None and len(others) >= 5:
            half = len(others) // 2
            middle = others[half] if len(others) % 2 else (others[half - 1] + others[half]) / 2
            expected = (value if goal == "min" else -value) <= middle
        assert passes(sweep, dict(enumerate(values)), number) == expected


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=12),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_a_whole_sweep_ends_with_the_best_third_of_each_rung_past_it(
    curves: list[list[float]], devices: int, order: random.Random
) -> None:
    """Trials log one value a rung in any order, on any number of devices; those past the third rung succeed."""
    trials = carried_out(plan(trials=len(curves)), curves, devices, order)
    assert len(trials) == len(curves)
    assert all(trial.is_settled for trial in trials)
    for rung in range(3):
        here = [trial for trial in trials if len(trial.rung_values) > rung]
        for trial in here:
            ahead = sum(curves[other.number][rung] < curves[trial.number][rung] for other in here)
            if ahead < max(1, len(here) // 3):
                assert trial.rung > rung
    assert {trial.rung for trial in trials if trial.run_state == State.SUCCEEDED} == {3}


def carried_out(sweep: SweepPlan, curves: list[list[float]], devices: int, order: random.Random) -> list[Trial]:
    """Do what the sweep asks for until it ends, as the conductor, the queue and the runs would."""
    trials: list[Trial] = []
    for _ in range(1000):
        for action in next_actions(sweep, trials, False):
            if action.kind == "end":
                return trials
            act(trials, action)
        live = [trial for trial in trials if trial.run_state == State.RUNNING]
        waiting = [trial for trial in trials if trial.run_state == State.QUEUED]
        if waiting and len(live) < devices:
            trials[waiting[0].number] = replace(waiting[0], run_state=State.RUNNING)
        elif live:
            trial = order.choice(live)
            trials[trial.number] = advanced(trial, curves[trial.number])
    raise AssertionError("the sweep never ended")


def act(trials: list[Trial], action: StudyAction) -> None:
    if action.kind == "launch":
        trials.append(Trial(action.number, "run", State.QUEUED))
        return
    trial = trials[action.number]
    changes: dict[str, object] = {
        "settle": {"state": str(trial.run_state), "value": (*trial.rung_values, 0.0)[-1]},
        "pass": {"rung": trial.rung + 1},
        "prune": {"pruned_at": action.step},
        "stop": {"is_stopping": True},
        "promote": {
            "rung": trial.rung + 1,
            "pruned_at": None,
            "state": None,
            "run_state": State.QUEUED,
            "is_stopping": False,
        },
    }[action.kind]
    trials[action.number] = replace(trial, **changes)


def advanced(trial: Trial, curve: list[float]) -> Trial:
    if trial.is_stopping:
        return replace(trial, run_state=State.STOPPED)
    if len(trial.rung_values) == len(curve):
        return replace(trial, run_state=State.SUCCEEDED)
    return replace(trial, rung_values=(*trial.rung_values, curve[len(trial.rung_values)]))


def test_a_pruned_trial_is_told_with_what_it_would_have_needed() -> None:
    values = {0: 0.41, 1: 0.32, 2: 0.5}
    assert pruned_message(plan(first_rung=400), values, 0, 0) == (
        "pruned at rung 1 (step 400): val/loss 0.41, the best third is at 0.32 or lower"
    )
    assert pruned_message(plan(), {0: None}, 0, 1) == "pruned at rung 2 (step 300): val/loss is not finite"
    six = dict(enumerate([0.9, 0.1, 0.2, 0.3, 0.4, 0.5]))
    assert pruned_message(plan("median"), six, 0, 1) == (
        "pruned at rung 2 (step 200): the best val/loss 0.9, the median of 5 others is 0.3"
    )


def test_a_trial_pruned_before_a_restart_is_stopped_after_it() -> None:
    live = Trial(0, "run", State.RUNNING, rung_values=(0.5,), pruned_at=100)
    assert next_actions(plan(trials=1), [live], False) == [StudyAction("stop", 0)]
    assert next_actions(plan(trials=1), [replace(live, is_stopping=True)], False) == []


def test_only_successive_halving_promotes_and_not_beyond_the_limit() -> None:
    settled = {"state": "pruned", "value": 0.5, "rung_values": (0.5,)}
    trials = [
        Trial(0, "run", State.STOPPED, pruned_at=100, **settled),
        *(Trial(n, "run", State.STOPPED, pruned_at=100, **settled | {"rung_values": (0.9,)}) for n in (1, 2)),
    ]
    assert next_actions(plan(), trials, False) == [StudyAction("promote", 0)]
    assert next_actions(plan("median"), trials, False) == [StudyAction("end")]
    limited = next_actions(plan(max_device_hours=1.0), trials, False, 1.0)
    assert [(action.kind, bool(action.message)) for action in limited] == [("end", True)]
    deleted = [replace(trials[0], run_id=None, run_state=None), *trials[1:]]
    assert next_actions(plan(), deleted, False) == [StudyAction("end")]


def test_rungs_are_a_factor_apart() -> None:
    assert [plan().rung_step(rung) for rung in range(3)] == [100, 300, 900]
    assert [plan("median").rung_step(rung) for rung in range(3)] == [100, 200, 400]
    assert plan(first_rung=None).rung_step(0) is None
    assert plan("none", first_rung=None).rung_step(0) is None
    with pytest.raises(ValidationError, match="no trial is stopped early"):
        plan("none")


def test_device_hours_saved_are_told_where_they_can_be_estimated() -> None:
    trials = [{"state": "pruned"}, {"state": "succeeded"}, {"state": "pruned"}]
    assert saved_in_words({"trials": trials[1:2], "device_hours_saved": None}) is None
    assert saved_in_words({"trials": trials, "device_hours_saved": None}) == "2 trials pruned"
    assert saved_in_words({"trials": trials, "device_hours_saved": 1.5}) == (
        "2 trials pruned: about 1.5 device-hours saved"
    )
