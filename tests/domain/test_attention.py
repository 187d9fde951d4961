"""Which runs a person should look at, and why."""

from __future__ import annotations

import math

import pytest

from domain.messages import State
from domain.views import FAILED_LATELY_S, attention

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("expected", "state", "about"),
    [
        (None, State.RUNNING, {}),
        ("hung", State.RUNNING, {"finding": "hung: no step for 80 s"}),
        ("hung", State.RUNNING, {"finding": "hung: no step", "last_loss": math.nan, "lost_contact": True}),
        ("NaN loss", State.RUNNING, {"finding": "loss is not a number: NaN since step 2"}),
        ("NaN loss", State.RUNNING, {"last_loss": math.inf, "lost_contact": True}),
        ("no contact", State.STOPPING, {"lost_contact": True, "finding": "loss has not moved: 2.3"}),
        ("warning", State.RUNNING, {"finding": "set_epoch never called: rank 0"}),
        (None, State.QUEUED, {}),
        ("failed", State.FAILED, {"ended_at": NOW - 60}),
        ("failed", State.FAILED, {"ended_at": NOW - 60, "last_loss": math.nan}),
        (None, State.FAILED, {"ended_at": NOW - FAILED_LATELY_S - 1}),
        ("NaN loss", State.SUCCEEDED, {"ended_at": NOW - 60, "last_loss": math.nan}),
        (None, State.SUCCEEDED, {"ended_at": NOW - 60, "last_loss": 0.1, "finding": "loss has not moved: 2"}),
        (None, State.STOPPED, {"ended_at": NOW - 60, "last_loss": math.nan, "finding": "hung: no step"}),
    ],
)
def test_attention_is_wanted_for_trouble_that_lasts_and_for_failures_of_a_day(expected, state, about):
    said = {"finding": None, "lost_contact": False, "last_loss": 0.5, "ended_at": None} | about
    assert attention(state, now=NOW, **said) == expected
