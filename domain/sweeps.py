"""Sweeps: the parameters they vary, their plan, and which trial begins, continues or ends next. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, product
from math import inf, isfinite, prod
from statistics import median
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from domain.messages import State
from domain.studies import StudyAction, StudyKind, Trial
from domain.text.formats import number as in_figures
from domain.text.formats import plural

Search = Literal["grid", "random", "tpe"]
Goal = Literal["min", "max"]
EarlyStop = Literal["asha", "median", "none"]
DEFAULT_TRIALS = 20
MOST_TRIALS = 10_000
RUNG_FACTOR = {"asha": 3, "median": 2}
"""How many times as many steps the next rung is away."""

# The parameters of a sweep: lists of values or ranges, as people write them. Pure.

Value = bool | int | float | str
Number = int | Annotated[float, Field(allow_inf_nan=False)]


class SweptParameter(BaseModel):
    """Either a list of values, or a range whose ends count; of integers where both ends are integers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    values: Annotated[list[Value], Field(min_length=1, max_length=1000)] | None = None
    low: Number | None = None
    high: Number | None = None
    log: bool = False
    """Whether every order of magnitude is equally likely."""

    @model_validator(mode="after")
    def _is_list_or_range(self) -> Self:
        if self.values is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("must be a list of values or a range, not both")
            if len(set(map(str, self.values))) < len(self.values):
                raise ValueError("names a value twice")
        elif self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("must be a list of values, or a range from a lower to a higher number")
        elif self.log and self.low <= 0:
            raise ValueError("must begin above 0 to be logarithmic")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether a range has only integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def tried(self) -> list[Value]:
        """All values, or the ends of a range and, unless it is of whole numbers, a fraction within: to check them."""
        if self.low is None or self.high is None:
            return list(self.values or ())
        inside = [] if self.is_whole else [self.low + (self.high - self.low) / math.pi]
        return [self.low, self.high, *inside]

    def __str__(self) -> str:
        if self.values is not None:
            return ",".join(as_argument(value) for value in self.values)
        return f"{self.low}..{self.high}{':log' if self.log else ''}"


class SweepPlan(BaseModel):
    """What a person decides about a sweep beside the spec that all its trials share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[StudyKind] = "sweep"
    noun: ClassVar[str] = "sweep"
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
            raise ValueError(f"parameters: the grid has {self.count} trials; the limit is {MOST_TRIALS}")
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


_LOG = re.compile(r"\s*:?\s+log\s*$")
"""The end of a range that is written with a space: 1e-5..1e-2 log."""
FORM = "NAME=VALUE,VALUE,… or NAME=LOW..HIGH, for example lr=1e-4,1e-3 or lr=1e-5..1e-2:log"


def parameters_of(texts: Iterable[str]) -> dict[str, SweptParameter]:
    """Return the parameters that people wrote, by name. Raises ValueError with the rule."""
    parameters: dict[str, SweptParameter] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not (name and equals and values):
            raise ValueError(f"must be {FORM}, got {text!r}")
        if name in parameters:
            raise ValueError(f"{name} is given twice")
        parameters[name] = parameter_of(values)
    return parameters


def holds_several(text: str) -> bool:
    """Whether a text is a list or a range, where a single value is expected otherwise."""
    return "," in text or ".." in text


def parameter_of(text: str) -> SweptParameter:
    """Return the parameter of a list or range as people write it. Raises ValueError."""
    ends, _, scale = _LOG.sub(":log", text).partition(":")
    low, dots, high = ends.partition("..")
    if not dots:
        return SweptParameter(values=[value_of(value.strip()) for value in text.split(",")])
    numbers = value_of(low.strip()), value_of(high.strip())
    if any(isinstance(end, str) for end in numbers) or scale not in ("", "log"):
        raise ValueError(f"a range must be LOW..HIGH or LOW..HIGH:log with numbers, got {text!r}")
    return SweptParameter.model_validate({"low": numbers[0], "high": numbers[1], "log": bool(scale)})


def value_of(text: str) -> int | float | str:
    """Return a number where the text is one."""
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text


def as_argument(value: Value) -> str:
    """Return a value as the text of an argument: 0.0003, true."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def params_in_words(params: Mapping[str, Value]) -> str:
    """Return the values of a trial, floats to four digits: lr=0.001 accumulate=2."""
    short = {name: f"{one:.4g}" if isinstance(one, float) else as_argument(one) for name, one in params.items()}
    return " ".join(f"{name}={text}" for name, text in short.items())


# The seeds of one training, as people write them: one run for each. Pure.

MOST_SEEDS = 100
SEEDS_FORM = "must be whole numbers from 0 on, such as 1,2,3 or 1..5"


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a list (1,2,3) or a range whose ends count (1..5). Raises ValueError with the rule."""
    seeds = listed(parameter_of(text))
    if seeds is None:
        raise ValueError(f"{SEEDS_FORM}, and at most {MOST_SEEDS}; got {text!r}")
    return seeds


def listed(parameter: SweptParameter) -> list[int] | None:
    """Return all values of a parameter as seeds; None where they are no seeds or too many."""
    low, high = parameter.low, parameter.high
    values: list[Value] | range = parameter.values or []
    if isinstance(low, int) and isinstance(high, int) and high - low < MOST_SEEDS and not parameter.log:
        values = range(low, high + 1)
    seeds = [value for value in values if type(value) is int and value >= 0]
    return seeds if 0 < len(seeds) == len(values) <= MOST_SEEDS else None


# What a sweep does next: launch trials while devices are free, and take the results of those that ended. Pure.

VALUELESS_TRIALS = 3
"""Trials without a value after which a sweep that never had one ends: its metric is not the script's."""


def next_actions(
    plan: SweepPlan, trials: Sequence[Trial], is_stopped: bool, device_hours: float = 0.0
) -> list[StudyAction]:
    """Decide from the trials so far and the device-hours they used; an empty list means to wait."""
    live = [trial for trial in trials if not trial.is_settled]
    if ended := [trial for trial in live if not trial.is_live]:
        return [StudyAction("settle", trial.number) for trial in ended]
    message = _hopeless(plan, trials) or _exhausted(plan, trials, device_hours)
    if is_stopped or message:
        stops = [StudyAction("stop", trial.number) for trial in live if not trial.is_stopping]
        return stops or ([] if live else [StudyAction("end", message=message)])
    return _early_stops(plan, trials, live) or _begins(plan, trials, live)


def _early_stops(plan: SweepPlan, trials: Sequence[Trial], live: Sequence[Trial]) -> list[StudyAction]:
    """Judge the trials that have reached their next rung; stop those pruned before a restart of the dashboard."""
    training = [trial for trial in live if not trial.is_stopping]
    stops = [StudyAction("stop", trial.number) for trial in training if trial.pruned_at is not None]
    judged = [t for t in training if t.run_state == State.RUNNING and len(t.rung_values) > t.rung]
    return stops or [action for trial in judged for action in _verdict(plan, trials, trial)]


def _verdict(plan: SweepPlan, trials: Sequence[Trial], trial: Trial) -> list[StudyAction]:
    """Let a trial pass, or prune it before its run is stopped: a restart in between stops it then."""
    number, values = trial.number, _at_rung(trials, trial.rung)
    if passes(plan, values, number):
        return [StudyAction("pass", number)]
    message, step = pruned_message(plan, values, number, trial.rung), plan.rung_step(trial.rung) or 0
    return [StudyAction("prune", number, message, step), StudyAction("stop", number, message)]


def _at_rung(trials: Sequence[Trial], rung: int) -> dict[int, float | None]:
    return {trial.number: trial.rung_values[rung] for trial in trials if len(trial.rung_values) > rung}


def _begins(plan: SweepPlan, trials: Sequence[Trial], live: Sequence[Trial]) -> list[StudyAction]:
    """Let a pruned trial continue or launch another one while there is room; end after the last."""
    if not _has_room(plan, live):
        return []
    if (promoted := _promotable(plan, trials)) is not None:
        return [StudyAction("promote", promoted)]
    if len(trials) < plan.count:
        return [StudyAction("launch", len(trials))]
    return [] if live else [StudyAction("end")]


def _promotable(plan: SweepPlan, trials: Sequence[Trial]) -> int | None:
    """Return the pruned trial that is now among the best of the highest rung, the best of them."""
    worthy = [
        trial
        for trial in trials
        if plan.early_stop == "asha" and trial.is_settled and trial.pruned_at is not None
        if trial.run_state is not None and not trial.is_live
        if passes(plan, _at_rung(trials, trial.rung), trial.number)
    ]
    sign = 1 if plan.goal == "max" else -1
    first = max(worthy, key=lambda t: (t.rung, sign * (t.rung_values[t.rung] or 0.0)), default=None)
    return first.number if first else None


def _has_room(plan: SweepPlan, live: Sequence[Trial]) -> bool:
    """Whether nothing of the sweep waits in the queue, so that one more trial may."""
    is_waiting = any(trial.run_state == State.QUEUED for trial in live)
    return not is_waiting and (plan.parallel is None or len(live) < plan.parallel)


def _hopeless(plan: SweepPlan, trials: Sequence[Trial]) -> str | None:
    settled = [trial for trial in trials if trial.is_settled]
    if len(settled) < VALUELESS_TRIALS or any(trial.value is not None for trial in settled):
        return None
    return f"The first {len(settled)} trials ended without a value of {plan.metric}: no more were launched."


def _exhausted(plan: SweepPlan, trials: Sequence[Trial], device_hours: float) -> str | None:
    is_complete = len(trials) == plan.count and all(trial.is_settled for trial in trials)
    is_complete = is_complete and _promotable(plan, trials) is None
    if plan.max_device_hours is None or device_hours < plan.max_device_hours or is_complete:
        return None
    return f"The limit of {plan.max_device_hours:g} device-hours was reached after {plural(len(trials), 'trial')}."


def best_trial(plan: SweepPlan, trials: Sequence[Trial]) -> Trial | None:
    """Return the best trial whose result is stored: of those that succeeded, else of all with a value."""
    finite = [one for one in trials if one.is_settled and one.value is not None and isfinite(one.value)]
    succeeded = [one for one in finite if one.state == State.SUCCEEDED]
    best = max if plan.goal == "max" else min
    return best(succeeded or finite, key=lambda one: one.value or 0.0, default=None)


# Early stopping: which trials continue at a rung, by successive halving (ASHA) or by the median rule. Pure.

FEWEST_FOR_MEDIAN = 5
"""Other trials at a rung before their median counts."""


def passes(plan: SweepPlan, values: Mapping[int, float | None], number: int) -> bool:
    """Decide whether the trial `number` continues, from the values at its rung by trial.

    None means a value that is not finite, which never continues. The best trial at a rung always does."""
    value = values[number]
    if value is None:
        return False
    bar = _bar(plan, values, number)
    return bar is None or not plan.is_better(bar, value)


def pruned_message(plan: SweepPlan, values: Mapping[int, float | None], number: int, rung: int) -> str:
    """Say at which rung a trial was pruned, with its value and what it would have needed."""
    place, value = f"pruned at rung {rung + 1} (step {plan.rung_step(rung)})", values[number]
    if value is None:
        return f"{place}: {plan.metric} is not finite"
    bar = in_figures(_bar(plan, values, number))
    if plan.early_stop == "median":
        others = f"the median of {len(values) - 1} others is {bar}"
        return f"{place}: the best {plan.metric} {in_figures(value)}, {others}"
    side = "lower" if plan.goal == "min" else "higher"
    return f"{place}: {plan.metric} {in_figures(value)}, the best third is at {bar} or {side}"


def saved_in_words(sweep: Mapping[str, Any]) -> str | None:
    """Return the trials of a sweep's document that were pruned, and what that saved; None where none was."""
    pruned = sum(trial["state"] == "pruned" for trial in sweep["trials"])
    if not pruned:
        return None
    hours, count = sweep["device_hours_saved"], f"{plural(pruned, 'trial')} pruned"
    return count if hours is None else f"{count}: about {in_figures(hours)} device-hours saved"


def hidden_in_words(count: int) -> str | None:
    """Say how many trials are not shown, and why; None where all are."""
    if not count:
        return None
    is_one = count == 1
    where = "its run is in a project" if is_one else "their runs are in projects"
    return f"{plural(count, 'trial')} {'is' if is_one else 'are'} hidden: {where} that you do not see."


def _bar(plan: SweepPlan, values: Mapping[int, float | None], number: int) -> float | None:
    """Return the worst value that continues; None where any does."""
    worst = inf if plan.goal == "min" else -inf
    finite = {trial: worst if value is None else value for trial, value in values.items()}
    if plan.early_stop == "median":
        others = [value for trial, value in finite.items() if trial != number]
        return median(others) if len(others) >= FEWEST_FOR_MEDIAN else None
    best_first = sorted(finite.values(), reverse=plan.goal == "max")
    return best_first[max(1, len(best_first) // RUNG_FACTOR["asha"]) - 1]
