"""A sweep as people read it: its state, its trials, the best of them, their curves and what mattered."""

from __future__ import annotations

from math import isfinite
from statistics import mean
from typing import Any

from db.engine import Store
from db.metrics import curves
from db.studies.studies import SweepView
from domain.messages import State
from domain.studies import PRUNED, StudyState, Trial, state_of
from domain.sweeps import best_trial


def state(sweep: SweepView) -> StudyState:
    """Return the state of a sweep: it failed if no trial has a value."""
    has_value = any(trial.value is not None for trial in sweep.all_trials)
    return state_of(sweep.ended_at, sweep.stop_requested_at, has_value)


def document(sweep: SweepView) -> dict[str, Any]:
    """Return a sweep as the API answers with it."""
    best_of_all = best_trial(sweep.plan, sweep.trials)
    return {
        "id": sweep.id,
        "state": state(sweep),
        "by": sweep.by,
        "target": sweep.spec.target,
        "metric": sweep.plan.metric,
        "goal": sweep.plan.goal,
        "search": sweep.plan.effective_search,
        "trials_planned": sweep.plan.count,
        "best": trial_document(best_of_all, sweep.plan.goal) if best_of_all else None,
        "trials": [trial_document(trial, sweep.plan.goal) for trial in sweep.trials],
        "hidden": len(sweep.hidden),
        "early_stop": sweep.plan.early_stop,
        "first_rung": sweep.plan.first_rung,
        "device_hours_saved": device_hours_saved(sweep),
        "device_hours": sum(trial.device_hours or 0.0 for trial in sweep.all_trials),
        "message": sweep.message,
    }


def device_hours_saved(sweep: SweepView) -> float | None:
    """Estimate what the pruned trials would have used beyond their own, at the mean of those that succeeded.

    None without any pruned trial, or any that succeeded."""
    pruned, whole = _hours(sweep, PRUNED), _hours(sweep, State.SUCCEEDED)
    return sum(max(0.0, mean(whole) - used) for used in pruned) if pruned and whole else None


def _hours(sweep: SweepView, state: str) -> list[float]:
    return [one.device_hours for one in sweep.trials if one.state == state and one.device_hours is not None]


def trial_document(trial: Trial, goal: str) -> dict[str, Any]:
    """Return a trial; before its end with the value so far."""
    value = trial.value if trial.is_settled else trial.best_value(goal)
    run_message = trial.run_message if trial.run_state == State.FAILED else None
    run_state = "stopping" if trial.is_stopping else trial.run_state
    return {
        "number": trial.number,
        "run": trial.run_id,
        "params": dict(trial.params),
        "value": value if value is not None and isfinite(value) else None,
        "rung": trial.rung,
        "state": trial.state or run_state or "stopped",
        "message": trial.message or run_message,
    }


# The curves of a sweep's trials and the importance of its parameters, for its page.

MOST_POINTS = 20_000
"""Of all curves together."""
MOST_OF_A_CURVE = 300


def picture(store: Store, sweep: SweepView) -> dict[str, Any]:
    """Return the scale of each parameter, their importance, and the points of each trial's metric."""
    most = max(2, min(MOST_OF_A_CURVE, MOST_POINTS // max(1, len(sweep.trials))))
    scales = {
        name: "list" if parameter.values is not None else "log" if parameter.log else "linear"
        for name, parameter in sweep.plan.parameters.items()
    }
    metric, runs = sweep.plan.metric, [trial.run_id for trial in sweep.trials]
    by_epoch = curves.runs_by_epoch(store, [run for run in runs if run is not None], metric)
    return {
        "scales": scales,
        "importance": _importance(sweep),
        "curves": [_curve(store, run, metric, most) for run in runs],
        "units": ["epoch" if run in by_epoch else "step" for run in runs],
    }


def _importance(sweep: SweepView) -> dict[str, float] | None:
    from dashboard.studies.engine import importance  # Optuna takes a second to import

    return importance(sweep)


def _curve(store: Store, run_id: str | None, metric: str, most: int) -> list[list[float | str]]:
    """Return [[step, value], …] of the metric: from the event files, else from what the run printed."""
    if run_id is None:
        return []
    points = curves.of_metric(store, run_id, metric, most)
    return [[step, curves.to_json_number(value)] for step, value, _ in points]
