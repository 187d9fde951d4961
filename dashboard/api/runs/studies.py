"""Studies: sweeps and scaling studies are requested, shown and stopped."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.api.runs.runs import Like
from dashboard.json_responses import answer
from dashboard.service.service import Service
from dashboard.studies import scaling_document, scaling_request, sweep_document, sweep_request
from db.studies import studies
from db.studies.studies import AnyPlan, StudyView
from domain.scaling.plan import ScalingPlan
from domain.sweeps import SweepPlan

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["studies"])
Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("/sweeps")
def list_sweeps(service: TheService, limit: Limit = 20) -> Response:
    """All sweeps, newest first."""
    return _listed(service, SweepPlan, limit)


@router.post("/sweeps", status_code=201)
def request_sweep(service: TheService, request: sweep_request.SweepRequest, like: Like = None) -> Response:
    """Train a spec with different parameters, as many trials at a time as have devices."""
    return _shown(service, SweepPlan, sweep_request.create(service, request, like), "/api/sweeps")


@router.get("/sweeps/{study_id}")
def show_sweep(service: TheService, study_id: str) -> Response:
    """One sweep: its trials so far, and the best of them."""
    return _shown(service, SweepPlan, study_id)


@router.get("/sweeps/{study_id}/curves")
def sweep_curves(service: TheService, study_id: str) -> Response:
    """One sweep with the metric of every trial as a curve, and the importance of its parameters."""
    sweep = studies.study(service.store, study_id, SweepPlan)
    return answer(_document(service, sweep) | sweep_document.picture(service.store, sweep))


@router.post("/sweeps/{study_id}/stop")
def stop_sweep(service: TheService, study_id: str) -> Response:
    """Ask a sweep to end, with its live trials; asking twice changes nothing."""
    return _stopped(service, SweepPlan, study_id)


@router.get("/scaling-studies")
def list_studies(service: TheService, limit: Limit = 20) -> Response:
    """All scaling studies, newest first."""
    return _listed(service, ScalingPlan, limit)


@router.post("/scaling-studies", status_code=201)
def request_study(service: TheService, request: scaling_request.StudyRequest, like: Like = None) -> Response:
    """Measure a spec on several numbers of devices, one run after another."""
    study_id = scaling_request.create(service, request, like)
    return _shown(service, ScalingPlan, study_id, "/api/scaling-studies")


@router.get("/scaling-studies/{study_id}")
def show_study(service: TheService, study_id: str) -> Response:
    """One scaling study: its points so far, and the verdict once it has ended."""
    return _shown(service, ScalingPlan, study_id)


@router.post("/scaling-studies/{study_id}/stop")
def stop_study(service: TheService, study_id: str) -> Response:
    """Ask a scaling study to end, with the run that it waits for; asking twice changes nothing."""
    return _stopped(service, ScalingPlan, study_id)


def _listed(service: Service, plan: type[AnyPlan], limit: int) -> Response:
    return answer([_document(service, study) for study in studies.studies(service.store, plan, limit)])


def _shown(service: Service, plan: type[AnyPlan], study_id: str, made_at: str | None = None) -> Response:
    """Return the answer with a study; `made_at`: below which path it was made just now."""
    document = _document(service, studies.study(service.store, study_id, plan))
    return answer(document, 201, {"Location": f"{made_at}/{study_id}"}) if made_at else answer(document)


def _stopped(service: Service, plan: type[AnyPlan], study_id: str) -> Response:
    study = studies.study(service.store, study_id, plan)
    studies.request_stop(service.store, study.id, service.clock())
    return _shown(service, plan, study_id)


def _document(service: Service, study: StudyView[Any]) -> dict[str, Any]:
    if isinstance(study.plan, SweepPlan):
        return sweep_document.document(study)
    return scaling_document.document(study, service.figures)
