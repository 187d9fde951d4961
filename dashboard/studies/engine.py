"""Optuna's ask and tell over the trials in our store: its study is built anew from them for every question."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from db.studies.studies import SweepView
from domain.messages import State
from domain.studies import PRUNED, Trial
from domain.sweeps import SweepPlan, SweptParameter, Value

optuna.logging.set_verbosity(optuna.logging.WARNING)
FEWEST_FOR_IMPORTANCE = 10
"""PED-ANOVA compares the best tenth of the trials with all of them."""


def next_params(sweep: SweepView) -> Mapping[str, Value]:
    """Ask for the values of the next trial."""
    plan, number = sweep.plan, len(sweep.trials)
    if plan.effective_search == "grid":
        return plan.of_grid(number)
    trial = study(sweep).ask(distributions(plan))
    return {name: trial.params[name] for name in plan.parameters}


def study(sweep: SweepView) -> optuna.Study:
    """Return Optuna's study with all trials so far, those that are still training included."""
    plan = sweep.plan
    built = optuna.create_study(
        direction="minimize" if plan.goal == "min" else "maximize", sampler=_sampler(plan, len(sweep.trials))
    )
    built.add_trials(_told(plan, trial) for trial in sweep.trials)
    return built


def distributions(plan: SweepPlan) -> dict[str, BaseDistribution]:
    """Return the parameters as Optuna has them."""
    return {name: _distribution(parameter) for name, parameter in plan.parameters.items()}


def importance(sweep: SweepView) -> dict[str, float] | None:
    """Return how much each parameter matters for the metric, adding up to 1, by PED-ANOVA.

    None with fewer than FEWEST_FOR_IMPORTANCE trials that succeeded, or one parameter that differs."""
    history = study(sweep)
    succeeded = history.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    names = [name for name in sweep.plan.parameters if len({trial.params[name] for trial in succeeded}) > 1]
    if len(succeeded) < FEWEST_FOR_IMPORTANCE or len(names) < 2:
        return None
    shares = get_param_importances(history, evaluator=PedAnovaImportanceEvaluator(), params=names)
    return {name: float(share) for name, share in shares.items()}


def _sampler(plan: SweepPlan, number: int) -> BaseSampler:
    """Seeded by the number of trials too: a sampler that is made anew would repeat its first draw."""
    seed = (plan.seed * 10_007 + number) % 2**32
    return RandomSampler(seed) if plan.effective_search == "random" else TPESampler(seed=seed)


def _distribution(parameter: SweptParameter) -> BaseDistribution:
    if parameter.values is not None:
        return CategoricalDistribution(parameter.values)
    low, high = parameter.low or 0, parameter.high or 0
    if parameter.is_whole:
        return IntDistribution(int(low), int(high), log=parameter.log)
    return FloatDistribution(low, high, log=parameter.log)


def _told(plan: SweepPlan, trial: Trial) -> FrozenTrial:
    """Tell of a trial what it was: complete only if it succeeded with a value."""
    has_value = trial.value is not None and isfinite(trial.value)
    state = TrialState.RUNNING if trial.state is None else TrialState.FAIL
    more: dict[str, Any] = {}
    if trial.state == State.SUCCEEDED and has_value:
        state, more = TrialState.COMPLETE, {"value": trial.value}
    if trial.state == PRUNED:
        state, more = TrialState.PRUNED, {"intermediate_values": _at_rungs(plan, trial)}
    params = {name: trial.params[name] for name in plan.parameters}
    return create_trial(state=state, params=params, distributions=distributions(plan), **more)


def _at_rungs(plan: SweepPlan, trial: Trial) -> dict[int, float]:
    """Return the metric by the step of the rung, as far as the trial went."""
    at_step = {plan.rung_step(rung) or 0: value for rung, value in enumerate(trial.rung_values)}
    return {step: value for step, value in at_step.items() if value is not None}
