"""What a sweep does next: launch trials while devices are free, and take the results of those that ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import Any, Literal

from domain.messages import State
from domain.sweeps.plan import RUNG_FACTOR, SweepPlan
from domain.text.formats import number as in_figures
from domain.text.formats import plural

VALUELESS_TRIALS = 3
"""Trials without a value after which a sweep that never had one ends: its metric is not the script's."""


@dataclass(frozen=True)
class Trial:
    """A trial as far as the next step depends on it."""

    number: int
    run_id: str | None
    run_state: State | None
    """None where it has no run: it could not be launched, or its run was deleted."""
    is_stopping: bool = False
    is_settled: bool = False
    """Whether its result is stored."""
    value: float | None = None
    rung: int = 0
    """Rungs that it has passed."""
    rung_values: tuple[float | None, ...] = ()
    """The metric at each rung that it reached, None where that is not finite."""
    pruned_at: int | None = None


@dataclass(frozen=True)
class SweepAction:
    """The next thing to do: launch a trial, do something with the trial `number`, or end the sweep.

    At a rung, a trial passes or is pruned; a pruned one is promoted when it is among the best after all."""

    kind: Literal["launch", "stop", "settle", "pass", "prune", "promote", "end"]
    number: int = 0
    message: str | None = None
    """Why a trial is pruned, or a sweep ends before its last trial."""


def next_actions(
    plan: SweepPlan, trials: Sequence[Trial], is_stopped: bool, device_hours: float = 0.0
) -> list[SweepAction]:
    """Decide from the trials so far and the device-hours they used; an empty list means to wait."""
    live = [trial for trial in trials if not trial.is_settled]
    ended = [trial for trial in live if trial.run_state is None or trial.run_state.is_terminal]
    if ended:
        return [SweepAction("settle", trial.number) for trial in ended]
    message = _hopeless(plan, trials) or _exhausted(plan, trials, device_hours)
    if is_stopped or message:
        stops = [SweepAction("stop", trial.number) for trial in live if not trial.is_stopping]
        return stops or ([] if live else [SweepAction("end", message=message)])
    return _early_stops(plan, trials, live) or _begins(plan, trials, live)


def _early_stops(plan: SweepPlan, trials: Sequence[Trial], live: Sequence[Trial]) -> list[SweepAction]:
    """Judge the trials that have reached their next rung; stop those pruned before a restart of the dashboard."""
    training = [trial for trial in live if not trial.is_stopping]
    stops = [SweepAction("stop", trial.number) for trial in training if trial.pruned_at is not None]
    judged = [t for t in training if t.run_state == State.RUNNING and len(t.rung_values) > t.rung]
    return stops or [_verdict(plan, trials, trial) for trial in judged]


def _verdict(plan: SweepPlan, trials: Sequence[Trial], trial: Trial) -> SweepAction:
    values = _at_rung(trials, trial.rung)
    if passes(plan, values, trial.number):
        return SweepAction("pass", trial.number)
    return SweepAction("prune", trial.number, pruned_message(plan, values, trial.number, trial.rung))


def _at_rung(trials: Sequence[Trial], rung: int) -> dict[int, float | None]:
    return {trial.number: trial.rung_values[rung] for trial in trials if len(trial.rung_values) > rung}


def _begins(plan: SweepPlan, trials: Sequence[Trial], live: Sequence[Trial]) -> list[SweepAction]:
    """Let a pruned trial go on or launch another one while there is room; end after the last."""
    if not _has_room(plan, live):
        return []
    if (promoted := _promotable(plan, trials)) is not None:
        return [SweepAction("promote", promoted)]
    if len(trials) < plan.count:
        return [SweepAction("launch", len(trials))]
    return [] if live else [SweepAction("end")]


def _promotable(plan: SweepPlan, trials: Sequence[Trial]) -> int | None:
    """Return the pruned trial that is now among the best of the highest rung, the best of them."""
    worthy = [
        trial
        for trial in trials
        if plan.early_stop == "asha" and trial.is_settled and trial.pruned_at is not None
        if trial.run_state is not None and trial.run_state.is_terminal
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
    return f"The first {len(settled)} trials ended without a value of {plan.metric}: no further one was launched."


def _exhausted(plan: SweepPlan, trials: Sequence[Trial], device_hours: float) -> str | None:
    is_complete = len(trials) == plan.count and all(trial.is_settled for trial in trials)
    is_complete = is_complete and _promotable(plan, trials) is None
    if plan.max_device_hours is None or device_hours < plan.max_device_hours or is_complete:
        return None
    return f"The limit of {plan.max_device_hours:g} device-hours was reached after {plural(len(trials), 'trial')}."


def best(plan: SweepPlan, states: Sequence[str], values: Sequence[float | None]) -> int | None:
    """Return the number of the best trial: of those that succeeded, else of all with a value."""
    finite = [number for number, value in enumerate(values) if value is not None and isfinite(value)]
    whole = [number for number in finite if states[number] == State.SUCCEEDED]
    numbers = sorted(whole or finite, key=lambda number: values[number] or 0.0, reverse=plan.goal == "max")
    return numbers[0] if numbers else None


# Early stopping: which trials go on at a rung, by successive halving (ASHA) or by the median rule. Pure.

FEWEST_FOR_MEDIAN = 5
"""Other trials at a rung before their median counts."""


def passes(plan: SweepPlan, values: Mapping[int, float | None], number: int) -> bool:
    """Decide whether the trial `number` goes on, from the values at its rung by trial.

    None stands for a value that is not finite, which never goes on. The best trial at a rung always does."""
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


def _bar(plan: SweepPlan, values: Mapping[int, float | None], number: int) -> float | None:
    """Return the worst value that goes on; None where any does."""
    worst = inf if plan.goal == "min" else -inf
    finite = {trial: worst if value is None else value for trial, value in values.items()}
    if plan.early_stop == "median":
        others = [value for trial, value in finite.items() if trial != number]
        return median(others) if len(others) >= FEWEST_FOR_MEDIAN else None
    best_first = sorted(finite.values(), reverse=plan.goal == "max")
    return best_first[max(1, len(best_first) // RUNG_FACTOR["asha"]) - 1]
