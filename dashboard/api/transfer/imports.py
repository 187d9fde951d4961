"""Imports: runs that trained elsewhere, as `rankzero import` reads them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService, Threads
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from dashboard.service import imports
from db.runs.imported_runs import Import
from domain.imported_runs import ImportedPoints, ImportRequest

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["imports"])
POINTS_BODY = {"requestBody": {"content": {"application/json": {"schema": ImportedPoints.model_json_schema()}}}}


@router.post("/imports", status_code=201)
def begin(service: TheService, request: ImportRequest) -> Response:
    """Create an ended run without points, or find the one that was imported before (200): `points` of it are
    stored. If its source has changed since, its points are deleted, to be sent anew."""
    begun = imports.begin(service, request)
    return answer(_document(begun), 201 if begun.is_new else 200)


@router.post("/imports/{run_id}/points", openapi_extra=POINTS_BODY)
async def add_points(service: TheService, request: Request, run_id: str) -> Response:
    """Store the next points of an imported run; 409 if `start` is not the number of its points so far."""
    threads: Threads = request.app.state.threads
    batch = ImportedPoints.model_validate_json(await request.body())
    return answer(_document(await threads.run(imports.add_points, service, run_id, batch)))


def _document(begun: Import) -> dict[str, Any]:
    return {
        "id": begun.run_id,
        "is_new": begun.is_new,
        "points": begun.points,
        "series": begun.series,
        "is_complete": begun.is_complete,
    }
