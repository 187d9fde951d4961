"""Scaling studies: request, list, show and stop them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.api.runs.runs import Like
from dashboard.json_responses import answer
from dashboard.scaling.document import document
from dashboard.scaling.request import StudyRequest, create
from db.scaling import studies

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["scaling"])


@router.get("/scaling-studies")
def list_studies(service: TheService, limit: Annotated[int, Query(ge=1, le=100)] = 20) -> Response:
    """All studies, newest first."""
    return answer([document(study, service.figures) for study in studies.studies(service.store, limit)])


@router.post("/scaling-studies", status_code=201)
def request_study(service: TheService, request: StudyRequest, like: Like = None) -> Response:
    """Measure a spec on several numbers of devices, one run after another."""
    study_id = create(service, request, like)
    shown = document(studies.study(service.store, study_id), service.figures)
    return answer(shown, 201, {"Location": f"/api/scaling-studies/{study_id}"})


@router.get("/scaling-studies/{study_id}")
def show_study(service: TheService, study_id: str) -> Response:
    """One study: its points so far, and the verdict once it has ended."""
    return answer(document(studies.study(service.store, study_id), service.figures))


@router.post("/scaling-studies/{study_id}/stop")
def stop_study(service: TheService, study_id: str) -> Response:
    """Ask a study to end, with the run that it waits for; asking twice changes nothing."""
    studies.request_stop(service.store, study_id, service.clock())
    return answer(document(studies.study(service.store, study_id), service.figures))
