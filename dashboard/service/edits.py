"""Changes that people make to runs after the launch."""

from __future__ import annotations

from dashboard.service.service import Service
from db.runs import run_requests
from domain.run_edit import RunEdit
from domain.views import RunView


def edit(service: Service, run_id: str, change: RunEdit) -> RunView:
    """Change how a run is named, sorted or described. Raises NoSuchRun, InvalidRequest."""
    run_requests.edit(service.store, run_id, change, service.clock())
    if change.printed_pattern is not None:
        service.hub.desired_state_of_runs_changed([run_id])
    service.run_changed(run_id)
    return service.run(run_id)
