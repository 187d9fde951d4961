"""Turn a request into a stored sweep, or into a run for each of several seeds, or refuse it with the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dashboard.service.service import Service
from dashboard.studies.trial_spec import takes, trial_spec
from db import acting
from db.runs import run_list
from db.runs.run_list import RunSelection
from db.studies import studies
from db.studies.studies import SweepView
from domain.launch.plan import program_name
from domain.masking.masking import masked_spec
from domain.requests.errors import InvalidRequest
from domain.scheduling.fit import fit
from domain.search.parser import parse
from domain.spec import RunEdit, RunSpec
from domain.studies import Trial
from domain.sweeps import MOST_SEEDS, SweepPlan, SweptParameter, Value
from domain.views import RunView


class SweepRequest(SweepPlan):
    """A sweep as a person requests it."""

    spec: RunSpec

    @property
    def plan(self) -> SweepPlan:
        """The request without its spec."""
        return SweepPlan.model_validate(self.model_dump(exclude={"spec"}))


def create(service: Service, request: SweepRequest, like: str | None = None) -> str:
    """Store the sweep and its code; return its id. Raises InvalidRequest, ValidationError."""
    with service.resolved(request.spec, like) as resolved:
        base = resolved.spec
        for params in _corners(request.parameters):
            trial = trial_spec(base, params)
            if trial.resume != base.resume:  # a parameter of that name
                service.references.check_request(trial)
            if refusal := fit(trial, resolved.cluster.states).refusal:
                raise InvalidRequest(*refusal)
        return studies.create(service.store, base, request.plan, service.clock())


def _corners(parameters: Mapping[str, SweptParameter]) -> Iterator[dict[str, Value]]:
    """Every value of a list and the ends of a range, with the first values of the other parameters."""
    first = {name: parameter.tried[0] for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        for value in parameter.tried:
            yield first | {name: value}


# Launch one spec with several seeds, a run for each: how much of its result is luck.

SEEDS = (1, 2, 3)


class SeedsRequest(BaseModel):
    """A spec and the seeds with which it is launched, a run for each."""

    model_config = ConfigDict(extra="forbid")

    spec: RunSpec
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=MOST_SEEDS)]


def launch_best_with_seeds(service: Service, sweep: SweepView, trial: Trial) -> list[str]:
    """Queue a run of the trial with each of SEEDS, and return their ids; the secrets in another's settings are not
    used. Raises InvalidRequest."""
    is_own = acting.rights().holds_values_of(sweep.by)
    launched = launch_with_seeds(service, sweep.spec if is_own else masked_spec(sweep.spec), SEEDS, trial.params)
    for run_id in launched:
        service.edit(run_id, RunEdit(add_tags=[_seeds_tag(sweep.id)]))
    return launched


def runs_with_seeds(service: Service, sweep_id: str) -> list[RunView]:
    """The newest runs of a sweep's best trial with each of SEEDS, by their seed."""
    now = service.clock()
    tagged = RunSelection(parse(f"tag:{_seeds_tag(sweep_id)}", now))
    runs = run_list.listed(service.store, now, tagged, None, len(SEEDS))
    return sorted(runs, key=lambda run: run.spec.seed or 0)


def _seeds_tag(sweep_id: str) -> str:
    """The tag by which a sweep finds these runs again, and people on the Runs page."""
    return f"seeds-of-{sweep_id}"


def launch_with_seeds(
    service: Service,
    base: RunSpec,
    seeds: Sequence[int],
    params: Mapping[str, Value] | None = None,
    like: str | None = None,
) -> list[str]:
    """Queue a run of the spec with each seed, and return their ids. Raises InvalidRequest."""
    return [service.launch(spec, like) for spec in seed_specs(base, seeds, params)]


def seed_specs(base: RunSpec, seeds: Sequence[int], params: Mapping[str, Value] | None = None) -> list[RunSpec]:
    """Return the spec with each seed, and with a trial's parameters. Raises InvalidRequest, ValidationError."""
    if len(set(seeds)) < len(seeds):
        raise InvalidRequest("seed", "seed: names a seed twice; each run needs another one.")
    if not takes(base, "seed"):
        name = program_name(base)
        rule = f"seed: {name} takes no seed; give it an option --seed, read RANKZERO_SEED, or hand over {{seed}}."
        raise InvalidRequest("seed", rule)
    return [trial_spec(base, {**(params or {}), "seed": seed}) for seed in seeds]
