"""Carry out sweeps: launch their trials while devices are free, and take the results of those at a rung or ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite

from pydantic import ValidationError

from dashboard.service.service import Service
from dashboard.sweeps.trial_spec import trial_spec
from db import acting
from db.engine import Store
from db.exceptions import NoSuchRun, WrongState
from db.metrics import curves
from db.metrics.performance import usage
from db.people.ownership import project_of
from db.runs.run_requests import NewTrial
from db.sweeps import sweeps, trials
from db.sweeps.sweeps import SweepView
from db.sweeps.trials import PRUNED, Result, TrialView
from domain.messages import SCRIPT_KINDS, Point, State
from domain.people.rights import Denied, Rights
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest, NoSuchReference
from domain.sweeps import SweepAction, SweepPlan, Trial, next_actions
from domain.text.formats import as_list


class SweepConductor:
    """Carries out one dashboard's sweeps; everything it knows is in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def tick(self) -> None:
        """Take the next step of every sweep in progress; called once a second."""
        if not self._service.leads():
            return
        for sweep in sweeps.sweeps(self._service.store, is_live=True):
            with acting.on_behalf(sweep.by, _via(sweep)):
                self._conduct(sweep)

    def _conduct(self, sweep: SweepView) -> None:
        sweep = with_rungs(self._service.store, self._permitted(sweep))
        judged = [_trial(trial) for trial in sweep.trials]
        is_stopped, hours = sweep.stop_requested_at is not None, self._used_hours(sweep)
        for action in next_actions(sweep.plan, judged, is_stopped, hours):
            self._act(sweep, action)

    def _permitted(self, sweep: SweepView) -> SweepView:
        """Return the sweep, asked to end if the person who began it may no longer launch."""
        refusal = self._rights(sweep).refusal(Action.LAUNCH, project_of(sweep.spec))
        if refusal is None or sweep.stop_requested_at is not None:
            return sweep
        return self._ended(sweep, f"{sweep.by} may no longer launch in this project.")

    def _ended(self, sweep: SweepView, why: str) -> SweepView:
        """Return the sweep, asked to end for a reason."""
        now = self._service.clock()
        sweeps.request_stop(self._service.store, sweep.id, now, f"Ended: {why}")
        return replace(sweep, stop_requested_at=now)

    def _rights(self, sweep: SweepView) -> Rights:
        """The present rights of the person who began the sweep, with which its trials are launched."""
        return self._service.identities.acting_for(sweep.by, _via(sweep), sweep.only_project)

    def _act(self, sweep: SweepView, action: SweepAction) -> None:
        store = self._service.store
        if action.kind == "launch":
            self._launch(sweep)
        elif action.kind == "stop":
            trial = sweep.trials[action.number]
            self._stop(sweep, trial, trial.message)
        elif action.kind == "pass":
            trials.pass_rung(store, sweep.id, action.number)
        elif action.kind == "prune":
            self._prune(sweep, sweep.trials[action.number], action.message or "")
        elif action.kind == "promote":
            self._promote(sweep, sweep.trials[action.number])
        elif action.kind == "settle":
            trials.settle(store, sweep.id, action.number, self._result(sweep, sweep.trials[action.number]))
        else:
            sweeps.end(store, sweep.id, self._service.clock(), action.message)
            log.info("sweep %s ended", sweep.id)

    def _stop(self, sweep: SweepView, trial: TrialView, message: str | None) -> None:
        run_id, project = trial.run_id or "", project_of(sweep.spec)
        self._service.stop_launched(self._rights(sweep), project, run_id, message)

    def _prune(self, sweep: SweepView, trial: TrialView, message: str) -> None:
        """Note that a trial is pruned before its run is stopped: a restart in between stops it then."""
        step = sweep.plan.rung_step(trial.rung) or 0
        trials.prune(self._service.store, sweep.id, trial.number, step, message)
        self._stop(sweep, trial, message)

    def _promote(self, sweep: SweepView, trial: TrialView) -> None:
        try:
            with acting.acting(self._rights(sweep)):
                trials.promote(self._service.store, sweep.id, trial.number, self._service.clock())
        except (Denied, InvalidRequest, NoSuchRun, WrongState) as error:
            message = f"It could not go on: {error}"
            result = Result(State.FAILED, trial.value, message, trial.device_hours)
            trials.settle(self._service.store, sweep.id, trial.number, result)
        self._service.schedule()

    def _launch(self, sweep: SweepView) -> None:
        # Optuna takes a second to import, and few have sweeps.
        from dashboard.sweeps.engine import next_params

        number, params = len(sweep.trials), dict(next_params(sweep))
        try:
            with acting.acting(self._rights(sweep)):
                spec = trial_spec(sweep.spec, params)
                self._service.launch(spec, part_of=NewTrial(sweep.id, number, params))
        except (Denied, NoSuchReference) as refusal:
            self._ended(sweep, str(refusal))
        except (InvalidRequest, ValidationError) as error:
            message = f"It could not be launched: {error}"
            trials.add_unlaunched(self._service.store, sweep.id, number, params, message)
        except WrongState as error:
            log.info("sweep %s: %s", sweep.id, error)

    def _result(self, sweep: SweepView, trial: TrialView) -> Result:
        """Return the result of a trial whose run has ended, or was deleted since."""
        if trial.run_id is None or trial.run_state is None:
            return Result(State.STOPPED, None, "Its run was deleted.", None)
        last, hours = trial.last_value, self._device_hours(trial.run_id)
        is_finite = last is not None and isfinite(last)
        value = trial.best_value(sweep.plan.goal) if is_finite else None
        if trial.pruned_at is not None and trial.run_state == State.STOPPED:
            return Result(PRUNED, value, trial.message, hours)
        message = trial.run_message if trial.run_state == State.FAILED else None
        if not (message or is_finite):
            message = self._without_value(sweep.plan.metric, trial.run_id, last)
        return Result(trial.run_state, value, message, hours)

    def _without_value(self, metric: str, run_id: str, value: float | None) -> str:
        if value is not None:
            return f"{metric} was {value} in the end."
        names = [name for source in SCRIPT_KINDS for name in curves.series_names(self._service.store, run_id, source)]
        return f"It logged no {metric}; it has {as_list(names, 8) or 'no series'}."

    def _used_hours(self, sweep: SweepView) -> float:
        """Return the device-hours of all trials so far; 0 where nothing limits them."""
        if sweep.plan.max_device_hours is None:
            return 0.0
        live = [self._device_hours(trial.run_id) for trial in sweep.trials if not trial.is_settled and trial.run_id]
        return sum(hours or 0.0 for hours in [*live, *(trial.device_hours for trial in sweep.trials)])

    def _device_hours(self, run_id: str) -> float | None:
        try:
            return usage(self._service.store, run_id, self._service.clock()).device_hours
        except NoSuchRun:
            return None


log = logging.getLogger("rankzero")


def _via(sweep: SweepView) -> str:
    return f"sweep {sweep.id}"


def _trial(trial: TrialView) -> Trial:
    return Trial(
        trial.number, trial.run_id, trial.run_state, trial.is_stopping, trial.is_settled, trial.value,
        trial.rung, trial.rung_values, trial.pruned_at,
    )  # fmt: skip


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
