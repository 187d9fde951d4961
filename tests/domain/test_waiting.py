"""Conditions that people wait for, what they hold for, and the loop of those who wait for long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from domain.waiting import (
    CALL_S,
    PATIENCE_S,
    Cursor,
    NoCondition,
    Sight,
    answers,
    has_ended,
    parse_cursor,
    parse_until,
)
from tests.virtual_time import VirtualTime

NOTHING_YET = Sight(has_ended=False, is_running=False, has_new_finding=False)


@pytest.mark.parametrize(
    ("text", "sight", "expected"),
    [
        ("ended", Sight(True, False, False), True),
        ("Ended", NOTHING_YET, False),
        ("finding", Sight(False, True, True), True),
        ("running", Sight(False, True, False), True),
        ("step >= 1000", Sight(False, True, False, {"step": [1000.0]}), True),
        ("step>1000", Sight(False, True, False, {"step": [1000.0]}), False),
        ("val/loss < 2e-1", Sight(False, True, False, {"val/loss": [0.5, 0.19]}), True),
        ("val/loss<.2", Sight(False, True, False, {"val/loss": [math.nan]}), False),
        ("val/loss < 0.2", NOTHING_YET, False),
        ('"val loss" <= -1', Sight(False, True, False, {"val loss": [-1.0]}), True),
        ("step > 5 and loss < 1", Sight(False, True, False, {"step": [6.0], "loss": [2.0]}), False),
        ("step > 5 and loss < 1 or running", Sight(False, True, False, {"step": [6.0], "loss": [2.0]}), True),
    ],
)
def test_a_condition_holds_for_what_is_seen(text: str, sight: Sight, expected: bool) -> None:
    assert parse_until(text).is_met(sight) == expected


def test_a_condition_knows_the_series_that_it_compares() -> None:
    until = parse_until('step > 5 or "val loss" < 1 or eval/acc >= 0.9')
    assert until.series == {"val loss", "eval/acc"} and until.compares
    assert not parse_until("ended or finding").compares


@pytest.mark.parametrize(
    "text", ["", "loss", "loss <", "loss == 3", "loss < nan", "loss < 1 or", "0.2 > val/loss x", "a b < 1"]
)
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(NoCondition, match='is no condition: write ended, finding, running, "step >= 1000" or'):
        parse_until(text)


def test_conditions_have_limits() -> None:
    with pytest.raises(NoCondition, match="at most 500 characters, this one 600"):
        parse_until("x" * 600)
    with pytest.raises(NoCondition, match="at most 20 series, this one 21"):
        parse_until(" or ".join(f"s{number} < 1" for number in range(21)))


def test_a_cursor_survives_its_way_through_an_address() -> None:
    cursor = Cursor("running", 2, 100, frozenset({"slow rank", "ü"}), {"val/loss": 90})
    assert parse_cursor(cursor.as_text()) == cursor
    assert cursor.as_text().isascii() and "=" not in cursor.as_text()


@pytest.mark.parametrize("text", ["x", "e30", "W10", "bnVsbA", "!", "eyJzdGF0ZSI6MX0", "é"])
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(NoCondition, match="since must be the cursor of an earlier answer"):
        parse_cursor(text)


def test_a_run_that_still_sends_has_not_ended_unless_its_node_is_silent() -> None:
    sending = {"has_points": True, "has_checkpoints": False, "silent_nodes": []}
    assert has_ended("failed", None) and not has_ended("running", None)
    assert not has_ended("succeeded", sending) and has_ended("succeeded", sending | {"silent_nodes": ["gpu-1"]})


class Away(Exception):
    """The dashboard does not answer."""


class Dashboard:
    """Answers in the given order; an error is raised."""

    def __init__(self, time: VirtualTime, *outcomes: Mapping[str, Any] | Away) -> None:
        self._time, self._outcomes = time, list(outcomes)
        self.asked: list[tuple[float, str]] = []

    def ask(self, wait_s: float, since: str) -> Mapping[str, Any]:
        """Wait in vain, or answer at once."""
        self.asked.append((wait_s, since))
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Away):
            raise outcome
        if outcome["reached"] == "timeout":
            self._time.pause(wait_s)
        return outcome


def news(reached: str, cursor: str, is_met: bool = False) -> Mapping[str, Any]:
    """An answer of the dashboard."""
    return {"reached": reached, "cursor": cursor, "is_met": is_met}


def test_whoever_waits_for_long_asks_again_from_the_cursor() -> None:
    with VirtualTime() as time:
        dashboard = Dashboard(time, news("timeout", "a"), news("finding", "b"), news("condition", "c", True))
        reached = [one["reached"] for one in answers(dashboard.ask, None, time, Away)]
    assert reached == ["timeout", "finding", "condition"]
    assert dashboard.asked == [(CALL_S, ""), (CALL_S, "a"), (CALL_S, "b")]


def test_a_time_out_is_kept_to_the_second() -> None:
    with VirtualTime() as time:
        began, dashboard = time.now(), Dashboard(time, news("timeout", "a"), news("timeout", "b"))
        assert [one["cursor"] for one in answers(dashboard.ask, CALL_S + 10, time, Away)] == ["a", "b"]
        assert dashboard.asked == [(CALL_S, ""), (10.0, "a")] and time.now() == began + CALL_S + 10


def test_an_absent_dashboard_is_asked_again_until_the_time_is_over() -> None:
    with VirtualTime() as time:
        dashboard, noted = Dashboard(time, Away(), news("ended", "a")), list[Exception]()
        assert [one["reached"] for one in answers(dashboard.ask, None, time, Away, noted.append)] == ["ended"]
        assert len(noted) == 1
        gone, began = Dashboard(time, *[Away()] * 3), time.now()
        with pytest.raises(Away):
            list(answers(gone.ask, 2 * PATIENCE_S, time, Away))
        assert time.now() == began + 2 * PATIENCE_S
