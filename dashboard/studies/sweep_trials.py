"""The trials of a sweep: the values of the next one, the results of those at a rung or ended, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from dashboard.service.service import Service
from dashboard.studies.trial_spec import trial_spec
from db import acting
from db.budgets import charges
from db.engine import Store
from db.exceptions import NoSuchRun, WrongState
from db.metrics import curves
from db.metrics.performance import usage
from db.studies import studies, trials
from db.studies.studies import SweepView
from db.studies.trials import Result
from domain import sweeps
from domain.messages import SCRIPT_KINDS, Point, State
from domain.people.rights import Denied, Rights
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from domain.studies import PRUNED, StudyAction, Trial
from domain.sweeps import SweepPlan
from domain.text.formats import as_list


def next_actions(service: Service, sweep: SweepView) -> list[StudyAction]:
    """Decide from the trials, whose rungs reached by now are stored; an empty list means to wait."""
    sweep = with_rungs(service.store, sweep)
    hours, is_stopped = _used_hours(service, sweep), sweep.stop_requested_at is not None
    return sweeps.next_actions(sweep.plan, sweep.trials, is_stopped, hours)


def new_params(sweep: SweepView, number: int) -> dict[str, Any]:
    """Return the values of the next trial."""
    from dashboard.studies.engine import next_params  # Optuna takes a second to import, and few have sweeps

    return dict(next_params(sweep))


def spec(sweep: SweepView, params: dict[str, Any]) -> RunSpec:
    """Return the spec of a trial. Raises InvalidRequest, ValidationError."""
    return trial_spec(sweep.spec, params)


def carry_out(service: Service, sweep: SweepView, action: StudyAction, rights: Rights) -> None:
    """Store what follows for a trial at a rung, or its result; promote it with the rights of the sweep's person."""
    store, trial = service.store, sweep.trials[action.number]
    if action.kind == "pass":
        trials.pass_rung(store, sweep.id, trial.number)
    elif action.kind == "prune":
        trials.prune(store, sweep.id, trial.number, action.step, action.message or "")
    elif action.kind == "settle":
        trials.settle(store, sweep.id, trial.number, _result(service, sweep, trial))
    else:
        _promote(service, sweep, trial, rights)


def _promote(service: Service, sweep: SweepView, trial: Trial, rights: Rights) -> None:
    if charges.must_wait(service.store, sweep.token_id, sweep.spec, service.clock()):
        return
    try:
        with acting.acting(rights):
            trials.promote(service.store, sweep.id, trial.number, service.clock())
    except (Denied, InvalidRequest, NoSuchRun, WrongState) as error:
        result = Result(State.FAILED, trial.value, f"It could not be resumed: {error}", trial.device_hours)
        trials.settle(service.store, sweep.id, trial.number, result)
    service.schedule()


def _result(service: Service, sweep: SweepView, trial: Trial) -> Result:
    """Return the result of a trial whose run has ended, or was deleted since."""
    if trial.run_id is None or trial.run_state is None:
        return Result(State.STOPPED, None, "Its run was deleted.", None)
    last, hours = trial.last_value, _device_hours(service, trial.run_id)
    is_finite = last is not None and isfinite(last)
    value = trial.best_value(sweep.plan.goal) if is_finite else None
    if trial.pruned_at is not None and trial.run_state == State.STOPPED:
        return Result(PRUNED, value, trial.message, hours)
    message = trial.run_message if trial.run_state == State.FAILED else None
    if not (message or is_finite):
        message = _without_value(service, sweep.plan.metric, trial.run_id, last)
    return Result(trial.run_state, value, message, hours)


def _without_value(service: Service, metric: str, run_id: str, value: float | None) -> str:
    if value is not None:
        return f"{metric} was {value} in the end."
    names = [name for source in SCRIPT_KINDS for name in curves.series_names(service.store, run_id, source)]
    return f"It logged no {metric}; it has {as_list(names, 8) or 'no series'}."


def _used_hours(service: Service, sweep: SweepView) -> float:
    """Return the device-hours of all trials so far; 0 where nothing limits them."""
    if sweep.plan.max_device_hours is None:
        return 0.0
    live = [_device_hours(service, trial.run_id) for trial in sweep.trials if not trial.is_settled and trial.run_id]
    return sum(hours or 0.0 for hours in [*live, *(trial.device_hours for trial in sweep.trials)])


def _device_hours(service: Service, run_id: str) -> float | None:
    try:
        return usage(service.store, run_id, service.clock()).device_hours
    except NoSuchRun:
        return None


# Read the metric of trials at the rungs that they reached.

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
    studies.complete_plan(store, sweep.id, first_rung=first)
    return replace(sweep, plan=sweep.plan.model_copy(update={"first_rung": first}))


def _with_values(store: Store, sweep: SweepView, trial: Trial) -> Trial:
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
