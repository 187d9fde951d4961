"""Sweeps: parameters as people write them, the trials of a grid, the next action, and the best trial."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from domain.messages import State
from domain.studies import StudyAction, Trial
from domain.sweeps import (
    DEFAULT_TRIALS,
    SweepPlan,
    best_trial,
    next_actions,
    parameter_of,
    parameters_of,
    params_in_words,
    seeds_of,
)


def plan(*texts: str, **more) -> SweepPlan:
    given = {name: one.model_dump() for name, one in parameters_of(texts or ["lr=0.1,0.2"]).items()}
    return SweepPlan.model_validate({"parameters": given, "metric": "val/loss"} | more)


def trial(number: int, run_state: State | None, **more) -> Trial:
    return Trial(number, f"run{number}", run_state, **more)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("1e-4,3e-4", {"values": [1e-4, 3e-4]}),
        ("1, 2", {"values": [1, 2]}),
        ("bf16,fp32", {"values": ["bf16", "fp32"]}),
        ("a:b,nan", {"values": ["a:b", "nan"]}),
        ("1e-5..1e-2:log", {"low": 1e-5, "high": 1e-2, "log": True}),
        ("1..8", {"low": 1, "high": 8}),
    ],
)
def test_a_parameter_is_a_list_or_a_range(text: str, fields: dict) -> None:
    parameter = parameter_of(text)
    assert parameter.model_dump(exclude_defaults=True) == fields
    assert parameter_of(str(parameter)) == parameter


@pytest.mark.parametrize("text", ["1,1", "2..1", "0..1:log", "a..b", "1..2:linear", "1..", "..2"])
def test_a_parameter_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parameter_of(text)


@pytest.mark.parametrize("texts", [["lr"], ["lr="], ["=1"], ["lr=1", "lr=2"]])
def test_a_parameter_needs_one_name_and_values(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"NAME=VALUE|given twice"):
        parameters_of(texts)


def test_a_grid_is_every_combination_in_the_order_of_the_values() -> None:
    grid = plan("lr=0.1,0.2", "accumulate=1,2,4")
    assert (grid.effective_search, grid.count) == ("grid", 6)
    assert [params_in_words(grid.of_grid(number)) for number in range(4)] == [
        "lr=0.1 accumulate=1",
        "lr=0.1 accumulate=2",
        "lr=0.1 accumulate=4",
        "lr=0.2 accumulate=1",
    ]
    assert plan("lr=0.1,0.2", search="grid", trials=1).count == 1


def test_the_search_fits_the_parameters() -> None:
    assert (plan("lr=1..2").effective_search, plan("lr=1..2").count) == ("tpe", DEFAULT_TRIALS)
    assert plan(trials=7).effective_search == "tpe"
    with pytest.raises(ValidationError, match="lr is a range"):
        plan("lr=1..2", search="grid")


def test_trials_are_launched_until_one_waits_in_the_queue() -> None:
    grid = plan("lr=1,2,3,4")
    assert next_actions(grid, [], False) == [StudyAction("launch", 0)]
    running = [trial(0, State.RUNNING)]
    assert next_actions(grid, running, False) == [StudyAction("launch", 1)]
    assert next_actions(grid, [*running, trial(1, State.QUEUED)], False) == []
    assert next_actions(plan("lr=1,2,3,4", parallel=1), running, False) == []


def test_an_ended_trial_is_settled_before_anything_is_launched() -> None:
    ended = [trial(0, State.FAILED), trial(1, None), trial(2, State.RUNNING)]
    assert next_actions(plan("lr=1,2,3,4"), ended, False) == [
        StudyAction("settle", 0),
        StudyAction("settle", 1),
    ]


def test_a_sweep_ends_when_its_last_trial_has_and_a_stop_ends_the_live_ones() -> None:
    settled = trial(0, State.SUCCEEDED, state="ended", value=1.0)
    live = trial(1, State.RUNNING)
    stopping = trial(1, State.RUNNING, is_stopping=True)
    assert next_actions(plan(), [settled, live], False) == []
    assert next_actions(plan(), [settled, live], True) == [StudyAction("stop", 1)]
    assert next_actions(plan(), [settled, stopping], True) == []
    assert next_actions(plan(), [settled, trial(1, State.FAILED, state="ended")], False) == [StudyAction("end")]
    assert next_actions(plan(), [], True) == [StudyAction("end")]


def test_a_metric_that_nobody_logs_ends_the_sweep() -> None:
    settled = [trial(number, State.SUCCEEDED, state="ended") for number in range(3)]
    (action,) = next_actions(plan("lr=1,2,3,4"), settled, False)
    assert action.kind == "end" and "without a value of val/loss" in str(action.message)
    with_one = [*settled[:2], trial(2, State.SUCCEEDED, state="ended", value=1.0)]
    assert next_actions(plan("lr=1,2,3,4"), with_one, False) == [StudyAction("launch", 3)]


def test_a_limit_of_device_hours_stops_the_live_trials_and_ends_the_sweep() -> None:
    grid = plan("lr=1,2,3,4", max_device_hours=2)
    live, settled = trial(0, State.RUNNING), trial(0, State.STOPPED, state="ended", value=1.0)
    assert next_actions(grid, [live], False, 1.9) == [StudyAction("launch", 1)]
    assert next_actions(grid, [live], False, 2.0) == [StudyAction("stop", 0)]
    (action,) = next_actions(grid, [settled], False, 2.1)
    assert (action.kind, action.message) == ("end", "The limit of 2 device-hours was reached after 1 trial.")


def test_the_best_is_of_those_that_succeeded() -> None:
    states = ["failed", "succeeded", "succeeded", "stopped"]

    def best(values: list[float | None], goal: str = "min") -> int | None:
        ended = [Trial(at, "run", None, state=states[at], value=value) for at, value in enumerate(values)]
        live = Trial(4, "run", State.RUNNING, lowest=0.0, highest=1.0)
        found = best_trial(plan(goal=goal), [*ended, live])
        return found and found.number

    assert best([0.1, 0.5, 0.4, 0.2]) == 2
    assert best([0.9, 0.5, 0.4, 0.2], "max") == 1
    assert best([0.3, None, None, 0.2]) == 3
    assert best([0.3, math.nan, None, None]) == 0
    assert best([None] * 4) is None


@pytest.mark.parametrize(("text", "seeds"), [("1,2,3", [1, 2, 3]), ("7", [7]), ("0..3", [0, 1, 2, 3])])
def test_seeds_are_a_list_or_a_range_of_whole_numbers(text: str, seeds: list[int]) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["a", "1.5,2", "-1,2", "1,1", "0..1000000000", "1..3:log", ""])
def test_wrong_list_of_seeds_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        seeds_of(text)
