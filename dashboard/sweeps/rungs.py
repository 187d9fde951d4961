"""Read the metric of trials at the rungs that they reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite

from db.engine import Store
from db.metrics import curves
from db.sweeps import sweeps, trials
from db.sweeps.sweeps import SweepView
from db.sweeps.trials import TrialView
from domain.messages import Point, State
from domain.sweeps.plan import SweepPlan

SHARE_OF_FIRST_RUNG = 9
"""The first rung lies at this part of the steps of the trial that succeeded first, unless a person chose it."""


def with_rungs(store: Store, sweep: SweepView) -> SweepView:
    """Return the sweep with the rungs that its live trials have reached by now, after storing them."""
    sweep = _with_first_rung(store, sweep)
    return replace(sweep, trials=[_with_values(store, sweep, trial) for trial in sweep.trials])


def _with_first_rung(store: Store, sweep: SweepView) -> SweepView:
    if sweep.plan.early_stop == "none" or sweep.plan.first_rung is not None:
        return sweep
    succeeded = (trial for trial in sweep.trials if trial.run_state == State.SUCCEEDED)
    steps = next((trial.last_step for trial in succeeded if trial.last_step), None)
    if steps is None:
        return sweep
    first = max(1, steps // SHARE_OF_FIRST_RUNG)
    sweeps.set_first_rung(store, sweep.id, first)
    return replace(sweep, plan=sweep.plan.model_copy(update={"first_rung": first}))


def _with_values(store: Store, sweep: SweepView, trial: TrialView) -> TrialView:
    step = sweep.plan.rung_step(len(trial.rung_values))
    has_reached = step is not None and trial.last_step is not None and trial.last_step >= step
    if trial.is_settled or trial.run_id is None or not has_reached:
        return trial
    logged = curves.of_metric(store, trial.run_id, sweep.plan.metric)
    values = (*trial.rung_values, *rung_values(sweep.plan, logged, len(trial.rung_values)))
    trials.record_rungs(store, sweep.id, trial.number, values)
    return replace(trial, rung_values=values)


def rung_values(plan: SweepPlan, points: Sequence[Point], first: int) -> Iterator[float | None]:
    """Yield the metric at each rung from `first` on that the points reach.

    It is the value of the first point there; for the median rule the best one up to there."""
    rung, best = 0, None
    for step, value, _ in points:
        if isfinite(value) and (best is None or plan.is_better(value, best)):
            best = value
        while (rung_step := plan.rung_step(rung)) is not None and step >= rung_step:
            judged = best if plan.early_stop == "median" else value if isfinite(value) else None
            if rung >= first:
                yield judged
            rung += 1
