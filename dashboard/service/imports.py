"""Take runs that trained elsewhere: their description and settings, then their points."""

from __future__ import annotations

from dashboard.errors import Rejection
from dashboard.json_responses import json_text
from dashboard.service.service import Service
from db.exceptions import NoSuchRun
from db.runs import imported_runs
from db.runs.imported_runs import Import
from db.tasks import task_reports
from domain.imported_runs import ImportedPoints, ImportRequest


def begin(service: Service, request: ImportRequest) -> Import:
    """Create an imported run, or find the one that was imported before.

    Raises Denied, InvalidRequest, NoSuchRun."""
    service.references.check_request(request)
    begun = imported_runs.begin(service.store, request, service.clock())
    if not begun.is_complete and request.settings:
        _store_settings(service, begun, request)
    service.run_changed(begun.run_id)
    return begun


def add_points(service: Service, run_id: str, batch: ImportedPoints) -> Import:
    """Store an imported run's next points. Raises NoSuchRun, Rejection where these are not the next ones."""
    stored, arrival = imported_runs.add_points(service.store, run_id, batch, service.clock())
    if not arrival.stored:
        raise Rejection(
            409,
            f"start: run {run_id} has {stored.points} points, got {batch.start}. Is it imported twice at the same "
            "time? Import it once more: that sends only what is missing.",
        )
    service.points_arrived(arrival, "events", 0)
    if stored.is_complete:
        service.run_changed(run_id)
    return stored


def _store_settings(service: Service, begun: Import, request: ImportRequest) -> None:
    """Append a line as the probe writes it; a later line replaces an earlier one's values."""
    line = json_text({"logger": request.format, "settings": request.settings}) + "\n"
    file_id, size_bytes = begun.settings_file
    with service.files.locked(begun.settings_file):
        service.files.append(file_id, size_bytes, line.encode())
        if task_reports.file_grew(service.store, file_id, size_bytes, size_bytes + len(line.encode())) is None:
            service.files.remove([file_id], [])
            raise NoSuchRun(f"Run {begun.run_id} was deleted while it was imported.")
