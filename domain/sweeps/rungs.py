"""Early stopping: which trials go on at a rung, by successive halving (ASHA) or by the median rule. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from statistics import median
from typing import Any

from domain.sweeps.plan import RUNG_FACTOR, SweepPlan
from domain.text.formats import number as in_figures
from domain.text.formats import plural

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
