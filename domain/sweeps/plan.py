"""The plan of a sweep: which values are tried, how many trials there are, and what is compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product
from math import prod
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from domain.sweeps.parameters import SweptParameter, Value

Search = Literal["grid", "random", "tpe"]
Goal = Literal["min", "max"]
EarlyStop = Literal["asha", "median", "none"]
DEFAULT_TRIALS = 20
MOST_TRIALS = 10_000
RUNG_FACTOR = {"asha": 3, "median": 2}
"""How many times as many steps the next rung is away."""


class SweepPlan(BaseModel):
    """What a person decides about a sweep beside the spec that all its trials share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: Annotated[dict[str, SweptParameter], Field(min_length=1, max_length=32)]
    metric: Annotated[str, Field(min_length=1, max_length=500)]
    """The series whose last value is compared."""
    goal: Goal = "min"
    search: Search | None = None
    """None: grid where all parameters are lists and no number of trials is given, else tpe."""
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] | None = None
    """None: all of a grid, else DEFAULT_TRIALS."""
    parallel: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most trials at a time; None: as many as have devices, and one that waits for them."""
    max_device_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Device-hours of all trials together at which the live ones are stopped and no further one is launched."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the search."""
    early_stop: EarlyStop = "none"
    first_rung: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Step of the metric at which trials are judged first; None: a ninth of the steps of the first to succeed."""

    @model_validator(mode="after")
    def _grid_is_finite(self) -> Self:
        ranges = [name for name, parameter in self.parameters.items() if parameter.values is None]
        if self.search == "grid" and ranges:
            raise ValueError(
                f"parameters: a grid needs lists of values, and {ranges[0]} is a range; search random or tpe"
            )
        if self.effective_search == "grid" and self.trials is None and self.count > MOST_TRIALS:
            raise ValueError(f"parameters: the grid has {self.count} trials, at most are {MOST_TRIALS}")
        return self

    @model_validator(mode="after")
    def _rung_is_of_early_stop(self) -> Self:
        if self.early_stop == "none" and self.first_rung is not None:
            raise ValueError("first_rung: no trial is stopped early; choose early_stop asha or median with it")
        return self

    @property
    def effective_search(self) -> Search:
        """The search, by default the one that fits the parameters."""
        are_lists = all(parameter.values is not None for parameter in self.parameters.values())
        return self.search or ("grid" if are_lists and self.trials is None else "tpe")

    @property
    def count(self) -> int:
        """Number of trials."""
        if self.effective_search != "grid":
            return self.trials or DEFAULT_TRIALS
        whole = prod(len(parameter.values or ()) for parameter in self.parameters.values())
        return min(whole, self.trials or whole)

    def of_grid(self, number: int) -> Mapping[str, Value]:
        """Return the values of a trial of a grid, in which the last parameter changes first."""
        rows = product(*(parameter.values or () for parameter in self.parameters.values()))
        return dict(zip(self.parameters, next(islice(rows, number, None)), strict=True))

    def rung_step(self, rung: int) -> int | None:
        """Return the step of a rung, counted from 0; None where there is none, or none yet."""
        if self.early_stop == "none" or self.first_rung is None:
            return None
        return self.first_rung * int(RUNG_FACTOR[self.early_stop] ** rung)

    def is_better(self, value: float, other: float) -> bool:
        """Whether a value is nearer to the goal than another."""
        return value < other if self.goal == "min" else value > other
