"""Studies: sweeps and scaling studies are requested, shown and stopped."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.api.runs.runs import Like
from dashboard.json_responses import answer
from dashboard.scaling.document import document as study_document
from dashboard.scaling.request import StudyRequest
from dashboard.scaling.request import create as create_study
from dashboard.sweeps.document import document as sweep_document
from dashboard.sweeps.document import picture
from dashboard.sweeps.request import SweepRequest
from dashboard.sweeps.request import create as create_sweep
from db.scaling import studies
from db.sweeps import sweeps

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["studies"])


@router.get("/sweeps")
def list_sweeps(service: TheService, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> Response:
    """All sweeps, newest first."""
    return answer([sweep_document(sweep) for sweep in sweeps.sweeps(service.store, limit)])


@router.post("/sweeps", status_code=201)
def request_sweep(service: TheService, request: SweepRequest, like: Like = None) -> Response:
    """Train a spec with different parameters, as many trials at a time as have devices."""
    sweep_id = create_sweep(service, request, like)
    shown = sweep_document(sweeps.sweep(service.store, sweep_id))
    return answer(shown, 201, {"Location": f"/api/sweeps/{sweep_id}"})


@router.get("/sweeps/{sweep_id}")
def show_sweep(service: TheService, sweep_id: str) -> Response:
    """One sweep: its trials so far, and the best of them."""
    return answer(sweep_document(sweeps.sweep(service.store, sweep_id)))


@router.get("/sweeps/{sweep_id}/curves")
def sweep_curves(service: TheService, sweep_id: str) -> Response:
    """One sweep with the metric of every trial as a curve, and the importance of its parameters."""
    sweep = sweeps.sweep(service.store, sweep_id)
    return answer(sweep_document(sweep) | picture(service.store, sweep))


@router.post("/sweeps/{sweep_id}/stop")
def stop_sweep(service: TheService, sweep_id: str) -> Response:
    """Ask a sweep to end, with its live trials; asking twice changes nothing."""
    sweeps.request_stop(service.store, sweep_id, service.clock())
    return answer(sweep_document(sweeps.sweep(service.store, sweep_id)))


# Scaling studies: request, list, show and stop them.


@router.get("/scaling-studies")
def list_studies(service: TheService, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> Response:
    """All studies, newest first."""
    return answer([study_document(study, service.figures) for study in studies.studies(service.store, limit)])


@router.post("/scaling-studies", status_code=201)
def request_study(service: TheService, request: StudyRequest, like: Like = None) -> Response:
    """Measure a spec on several numbers of devices, one run after another."""
    study_id = create_study(service, request, like)
    shown = study_document(studies.study(service.store, study_id), service.figures)
    return answer(shown, 201, {"Location": f"/api/scaling-studies/{study_id}"})


@router.get("/scaling-studies/{study_id}")
def show_study(service: TheService, study_id: str) -> Response:
    """One study: its points so far, and the verdict once it has ended."""
    return answer(study_document(studies.study(service.store, study_id), service.figures))


@router.post("/scaling-studies/{study_id}/stop")
def stop_study(service: TheService, study_id: str) -> Response:
    """Ask a study to end, with the run that it waits for; asking twice changes nothing."""
    studies.request_stop(service.store, study_id, service.clock())
    return answer(study_document(studies.study(service.store, study_id), service.figures))
