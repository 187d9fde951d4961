"""Judge a launch by its token's budget, and say when a run has used up its time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from domain.people.rights import Denied
from domain.people.tokens import BudgetView
from domain.text.formats import number, plural, time_span

HOUR_S = 3600.0
"""Charged at once at the most, and taken as the time of a run of which nothing is known."""
WARNS_AT = 0.95
"""The share of its time after which a run's history tells that it will end."""
GRACE_S = 600.0
GRACE_INTERVALS = 2.0
"""A run over its time waits for a checkpoint so long, or as many of its usual intervals if that is longer."""


class OverBudget(Denied):
    """The token's budget does not suffice; the message has the number and the rule."""


@dataclass(frozen=True)
class ChargedLaunch:
    """What an attempt would take of its token's budget."""

    devices: int
    expected_s: float | None
    """Its expected time; None: unknown."""
    trained_s: float = 0.0
    """What its run has trained already, by this budget."""
    longest_s: float | None = None
    """What its run may train in all."""

    @property
    def takes_s(self) -> float:
        """The time that it is taken to need: as expected, within its limit; an hour where nothing is known."""
        takes_s = HOUR_S if self.expected_s is None else self.expected_s
        return takes_s if self.longest_s is None else min(takes_s, max(self.longest_s - self.trained_s, 0.0))

    @property
    def least_s(self) -> float:
        """The seconds that are charged for each device at once."""
        return min(self.takes_s, HOUR_S)


def check(name: str, budget: BudgetView, launch: ChargedLaunch) -> None:
    """Check that a launch fits the budget of the token with this name. Raises OverBudget."""
    if launch.longest_s is not None and launch.trained_s >= launch.longest_s:
        raise OverBudget(f"The run has trained for its {time_span(launch.longest_s)}, which token {name} allows.")
    most, devices = budget.most_devices, plural(launch.devices, "device")
    if most is not None and budget.devices + launch.devices > most:
        in_use = f", and its runs have or wait for {budget.devices}" if budget.devices else ""
        raise OverBudget(f"This launch would take {devices}; token {name} may use {most} at a time{in_use}.")
    needs_s = launch.devices * launch.takes_s
    if budget.used_s + needs_s > budget.budget_s:
        raise OverBudget(
            f"This launch would take {devices} for up to {time_span(launch.takes_s)} ({hours(needs_s)} device-hours); "
            f"token {name} has {left(budget)} device-hours left."
        )


def must_wait(budget: BudgetView, devices: int) -> bool:
    """Whether a launch on so many devices would be allowed once earlier runs of the token have ended."""
    most = budget.most_devices
    return most is not None and devices <= most < budget.devices + devices


def left(budget: BudgetView) -> str:
    """Return what is left of a budget in device-hours: 1.5 of 20."""
    return f"{hours(max(budget.budget_s - budget.used_s, 0.0))} of {hours(budget.budget_s)}"


def hours(seconds: float) -> str:
    """Return device-seconds as device-hours."""
    return number(seconds / 3600.0)


def over_since(trained_s: float, longest_s: float | None, now: float) -> float | None:
    """Return when a training run used up its time; None where it has some left."""
    return now - (trained_s - longest_s) if longest_s is not None and trained_s >= longest_s else None


def grace_s(checkpoint_times: list[float]) -> float:
    """Return how long a run over its time waits for a checkpoint, by when it wrote those that it has."""
    if len(checkpoint_times) < 2:
        return GRACE_S
    interval_s = (max(checkpoint_times) - min(checkpoint_times)) / (len(checkpoint_times) - 1)
    return max(GRACE_S, GRACE_INTERVALS * interval_s)
