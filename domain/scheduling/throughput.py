"""An attempt's step time and remaining time, from its loss curve. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol


class Curve(Protocol):
    """A series' first and last point."""

    @property
    def first_step(self) -> int: ...
    @property
    def last_step(self) -> int: ...
    @property
    def first_wall(self) -> float: ...
    @property
    def last_wall(self) -> float: ...


class Pace(NamedTuple):
    """An attempt's mean step time in seconds, its last step, and its total steps."""

    step_time_s: float
    last_step: int
    total_steps: int

    def left_s(self, step: int) -> float:
        """Seconds from `step` to the end."""
        return max(0.0, (self.total_steps - step) * self.step_time_s)


def pace(loss: Curve | None, total_steps: int | None) -> Pace | None:
    """The attempt's pace; None until two steps are logged, or when the number of steps is unknown."""
    if loss is None or not total_steps or loss.last_step <= loss.first_step:
        return None
    step_time_s = (loss.last_wall - loss.first_wall) / (loss.last_step - loss.first_step)
    return Pace(step_time_s, loss.last_step, total_steps)


def total_ahead(totals: Iterable[int | None], reached: float) -> int | None:
    """The first known one of the totals that is not yet passed: a training past its total was given another."""
    return next((total for total in totals if total and total >= reached), None)


def logged_total(value: float) -> int | None:
    """The total number of steps as logged by the script; None when the value is not a count."""
    return int(value) if math.isfinite(value) and value >= 1 else None
