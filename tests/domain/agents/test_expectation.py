"""How long a launch takes is said from earlier runs of the same code, and unknown where none is comparable."""

from __future__ import annotations

from typing import Any

import pytest

from domain.agents.expectation import EarlierRun, Expected, expected
from domain.spec import RunSpec

SPEC = {"target": "/home/me/train.py", "entry": "train.py", "gpus_per_node": 2, "max_steps": 100}


def spec(**changes: Any) -> RunSpec:
    return RunSpec(**SPEC | changes)


def earlier(*took_s: float, **changes: Any) -> list[EarlierRun]:
    return [EarlierRun(f"run{number}", spec(**changes), seconds) for number, seconds in enumerate(took_s)]


def test_the_last_three_runs_of_the_same_length_give_the_range() -> None:
    assert expected(spec(), earlier(720.0, 840.0, 780.0, 9000.0)) == Expected(
        720.0, 840.0, ["run0", "run1", "run2"], "Like its last three runs: 12 to 14 min."
    )


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ((720.0,), "Like its last run: 12 min."),
        ((50.0, 120.0), "Like its last two runs: 50 s to 2 min."),
        ((720.0, 720.1), "Like its last two runs: 12 min."),
    ],
)
def test_sentence_has_one_number_where_there_is_one(times: tuple[float, ...], sentence: str) -> None:
    outcome = expected(spec(), earlier(*times))
    assert outcome is not None and outcome.sentence == sentence


@pytest.mark.parametrize(
    "other",
    [
        {"target": "/home/me/other.py"},
        {"entry": "other.py"},
        {"gpus_per_node": 4},
        {"args": ["--resnet", "50"]},
        {"max_steps": None},
    ],
)
def test_other_code_devices_options_and_unknown_lengths_tell_nothing(other: dict[str, Any]) -> None:
    assert expected(spec(), earlier(60.0, **other)) is None


def test_values_of_options_and_the_place_of_the_same_code_do_not_matter() -> None:
    code = "a" * 64
    args = {"args": ["--width", "64"], "snapshot": code}
    others = earlier(60.0, target="/elsewhere/train.py", args=["--width", "512"], snapshot=code)
    assert expected(spec(**args), others) is not None


def test_other_numbers_of_steps_are_scaled() -> None:
    outcome = expected(spec(max_steps=1000), earlier(60.0, 90.0))
    assert outcome is not None
    assert (outcome.low_s, outcome.high_s) == (600.0, 900.0)
    assert outcome.sentence == "Like its last two runs, for 1\u202f000 steps: 10 to 15 min."


def test_epochs_are_scaled_where_no_steps_are_known() -> None:
    outcome = expected(spec(max_steps=None, epochs=4), earlier(60.0, max_steps=None, epochs=2))
    assert outcome is not None and outcome.high_s == 120.0
    assert expected(spec(max_steps=None, epochs=4), earlier(60.0)) is None


def test_steps_may_stand_in_the_arguments() -> None:
    outcome = expected(
        spec(max_steps=None, args=["--steps", "200"]), earlier(60.0, max_steps=None, args=["--steps", "100"])
    )
    assert outcome is not None and outcome.high_s == 120.0
