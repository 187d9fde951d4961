"""The one rule of liveness: alive, no contact, lost."""

from __future__ import annotations

import pytest

from domain.liveness import LOST_AFTER_S, SILENT_AFTER_S, contact_state, is_silent


@pytest.mark.parametrize(
    ("silent_s", "state"),
    [
        (0.0, "alive"),
        (SILENT_AFTER_S - 0.1, "alive"),
        (SILENT_AFTER_S, "no contact"),
        (LOST_AFTER_S - 0.1, "no contact"),
        (LOST_AFTER_S, "lost"),
    ],
)
def test_silence_goes_from_alive_through_no_contact_to_lost(silent_s, state):
    assert contact_state(silent_s) == state
    assert is_silent(silent_s) == (state != "alive")


def test_a_node_that_is_lost_early_is_never_shown_as_alive():
    assert contact_state(5.0, lost_after_s=4.0) == "lost"
