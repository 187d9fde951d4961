"""Request profiles of a run's ranks."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.service.service import Service
from db.ranks import profiles
from domain.profiles.views import ProfileView, cost_sentence, latest_cost


def request_profile(service: Service, run_id: str, steps: int, ranks: Sequence[int]) -> ProfileView:
    """Request a profile of the next steps of a run's ranks. Raises NoSuchRun, WrongState."""
    profile_id = profiles.request(service.store, run_id, steps, ranks, service.clock())
    service.hub.desired_state_of_runs_changed([run_id])
    service.run_changed(run_id)
    return profiles.profile(service.store, run_id, profile_id, service.clock())


def cost(service: Service, run_id: str, recorded: Sequence[ProfileView], ranks: int) -> str:
    """Say what a profile of so many ranks costs, by the run's latest one, else by the latest of another run."""
    known = latest_cost(recorded) or profiles.cost_elsewhere(service.store, run_id)
    return cost_sentence(known, ranks)
