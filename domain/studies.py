"""What sweeps and scaling studies share: their trials, the actions by which they proceed, and their states. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from domain.messages import State

StudyKind = Literal["sweep", "scaling"]
StudyState = Literal["running", "stopping", "succeeded", "failed", "stopped"]
PRUNED = "pruned"
"""State of a trial that was not among the best at a rung, and of no run."""


@dataclass(frozen=True)
class Trial:
    """A trial with its run and the metric of its study; `state` and what follows are its result, None before it."""

    number: int
    run_id: str | None
    run_state: State | None
    """None where it has no run: it could not be launched, or its run was deleted."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """In a scaling study `point`: its place among the plan's points."""
    run_message: str | None = None
    is_stopping: bool = False
    rung: int = 0
    """Rungs that it has passed."""
    rung_values: tuple[float | None, ...] = ()
    """The metric at each rung that it reached, None where that is not finite."""
    pruned_at: int | None = None
    last_step: int | None = None
    """The last step at which the metric was logged."""
    last_value: float | None = None
    """The metric there, which may be NaN; None where it was not logged."""
    logged_s: float = 0.0
    """Seconds from its first to its last point, in the newest attempt that logged it."""
    lowest: float | None = None
    """The lowest finite value of the metric so far, over all attempts."""
    highest: float | None = None
    """The highest one."""
    state: str | None = None
    value: float | None = None
    device_hours: float | None = None
    message: str | None = None

    def best_value(self, goal: str) -> float | None:
        """The best value so far, as a comparison of runs has it; None without a finite one."""
        return self.highest if goal == "max" else self.lowest

    @property
    def is_settled(self) -> bool:
        """Whether its result is stored."""
        return self.state is not None

    @property
    def is_live(self) -> bool:
        """Whether its run has not ended."""
        return self.run_state is not None and not self.run_state.is_terminal


@dataclass(frozen=True)
class StudyAction:
    """The next thing to do: launch a trial, do something with the trial `number`, or end the study.

    At a rung of a sweep, a trial passes or is pruned; a pruned one is promoted if it rejoins the best."""

    kind: Literal["launch", "stop", "settle", "pass", "prune", "promote", "end"]
    number: int = 0
    """The trial; in a scaling study that launches one, the point that it measures."""
    message: str | None = None
    """Why a trial is pruned or stopped, or a study ends before its last trial."""
    step: int = 0
    """Where a trial is pruned."""


def state_of(ended_at: float | None, stop_requested_at: float | None, has_result: bool) -> StudyState:
    """Return the state of a study; it failed if it ended on its own without a result."""
    if ended_at is None:
        return "running" if stop_requested_at is None else "stopping"
    if stop_requested_at is not None:
        return "stopped"
    return "succeeded" if has_result else "failed"
