"""What a budget refuses, with the number and the rule, and when a run is over its time."""

from __future__ import annotations

import pytest

from domain.agents.budget import HOUR_S, ChargedLaunch, OverBudget, check, grace_s, must_wait, over_since
from domain.people.tokens import BudgetView

TWENTY_H = 20 * HOUR_S


def budget(used_h: float = 0.0, devices: int = 0, most: int | None = None) -> BudgetView:
    return BudgetView(TWENTY_H, most, None, used_h * HOUR_S, devices)


@pytest.mark.parametrize(
    ("launch", "least_s"),
    [
        (ChargedLaunch(2, None), HOUR_S),
        (ChargedLaunch(2, 600.0), 600.0),
        (ChargedLaunch(2, 5 * HOUR_S), HOUR_S),
        (ChargedLaunch(2, 5 * HOUR_S, longest_s=1200.0), 1200.0),
        (ChargedLaunch(2, None, trained_s=1000.0, longest_s=1200.0), 200.0),
    ],
)
def test_an_hour_at_most_is_charged_at_once(launch: ChargedLaunch, least_s: float) -> None:
    assert launch.least_s == least_s


@pytest.mark.parametrize(
    ("used", "launch", "sentence"),
    [
        (
            budget(18.5), ChargedLaunch(2, 2 * HOUR_S),
            "This launch would take 2 devices for up to 2 h (4 device-hours); token agent has 1.5 of 20 device-hours "
            "left.",
        ),
        (budget(19.5), ChargedLaunch(1, None), "1 device for up to 1 h (1 device-hours); token agent has 0.5 of 20"),
        (budget(25), ChargedLaunch(1, 60.0), "has 0 of 20 device-hours left"),
        (budget(0, 1, 2), ChargedLaunch(2, 60.0), "token agent may use 2 at a time, and its runs have or wait for 1"),
        (budget(0, 0, 2), ChargedLaunch(3, 60.0), "take 3 devices; token agent may use 2 at a time."),
        (
            budget(),
            ChargedLaunch(1, 60.0, trained_s=7200.0, longest_s=7200.0),
            "has trained for its 2 h, which token agent",
        ),
    ],
)  # fmt: skip
def test_refusal_has_the_number_and_the_rule(used: BudgetView, launch: ChargedLaunch, sentence: str) -> None:
    with pytest.raises(OverBudget) as refused:
        check("agent", used, launch)
    assert sentence in str(refused.value)


def test_what_fits_exactly_is_allowed() -> None:
    check("agent", budget(18.0, 0, 2), ChargedLaunch(2, HOUR_S))


@pytest.mark.parametrize(("most", "waits"), [(None, False), (1, False), (2, True), (3, False)])
def test_study_waits_only_for_devices_that_it_can_get(most: int | None, waits: bool) -> None:
    assert must_wait(budget(0, 1, most), 2) is waits


def test_run_is_over_its_time_since_that_was_used_up() -> None:
    assert over_since(99.0, 100.0, now=1000.0) is None
    assert over_since(130.0, 100.0, now=1000.0) == 970.0
    assert over_since(130.0, None, now=1000.0) is None


@pytest.mark.parametrize(
    ("times", "seconds"), [([], 600.0), ([10.0], 600.0), ([0, 60], 600.0), ([0, 900, 1800], 1800.0)]
)
def test_a_checkpoint_is_awaited_ten_minutes_or_two_intervals(times: list[float], seconds: float) -> None:
    assert grace_s(times) == seconds
