"""Sweeps: request, list, show and stop them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.api.runs.runs import Like
from dashboard.json_responses import answer
from dashboard.sweeps.document import document, picture
from dashboard.sweeps.request import SweepRequest, create
from db.sweeps import sweeps

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["sweeps"])


@router.get("/sweeps")
def list_sweeps(service: TheService, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> Response:
    """All sweeps, newest first."""
    return answer([document(sweep) for sweep in sweeps.sweeps(service.store, limit)])


@router.post("/sweeps", status_code=201)
def request_sweep(service: TheService, request: SweepRequest, like: Like = None) -> Response:
    """Train a spec with different parameters, as many trials at a time as have devices."""
    sweep_id = create(service, request, like)
    shown = document(sweeps.sweep(service.store, sweep_id))
    return answer(shown, 201, {"Location": f"/api/sweeps/{sweep_id}"})


@router.get("/sweeps/{sweep_id}")
def show_sweep(service: TheService, sweep_id: str) -> Response:
    """One sweep: its trials so far, and the best of them."""
    return answer(document(sweeps.sweep(service.store, sweep_id)))


@router.get("/sweeps/{sweep_id}/curves")
def sweep_curves(service: TheService, sweep_id: str) -> Response:
    """One sweep with the metric of every trial as a curve, and the importance of its parameters."""
    sweep = sweeps.sweep(service.store, sweep_id)
    return answer(document(sweep) | picture(service.store, sweep))


@router.post("/sweeps/{sweep_id}/stop")
def stop_sweep(service: TheService, sweep_id: str) -> Response:
    """Ask a sweep to end, with its live trials; asking twice changes nothing."""
    sweeps.request_stop(service.store, sweep_id, service.clock())
    return answer(document(sweeps.sweep(service.store, sweep_id)))
