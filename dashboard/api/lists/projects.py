"""A project as a whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from db.runs import projects

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])


@router.get("/project")
def project(service: TheService, name: Annotated[str, Query(min_length=1, max_length=200)]) -> Response:
    """A project: its runs by state, the metric they are judged by, its baseline and best run, and its last weeks."""
    return answer(projects.project(service.store, name, service.clock()))
