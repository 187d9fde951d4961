"""Launch the best trial of a sweep again with several seeds: how much of its value is luck."""

from __future__ import annotations

from dashboard.service.service import Service
from dashboard.sweeps.trial_spec import takes, trial_spec
from db.sweeps.sweeps import SweepView
from db.sweeps.trials import TrialView
from domain.errors import InvalidRequest
from domain.launch.plan import program_name

SEEDS = (1, 2, 3)


def launch_with_seeds(service: Service, sweep: SweepView, trial: TrialView) -> list[str]:
    """Queue a run of the trial with each of SEEDS, and return their ids. Raises InvalidRequest."""
    if not takes(sweep.spec, "seed"):
        name = program_name(sweep.spec)
        rule = f"seed: {name} takes no seed; give it an option --seed, read RANKZERO_SEED, or hand over {{seed}}."
        raise InvalidRequest("seed", rule)
    runs = []
    for seed in SEEDS:
        spec = trial_spec(sweep.spec, {**trial.params, "seed": seed})
        runs.append(service.launch(spec))
    return runs
