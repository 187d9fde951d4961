"""What the script told its loggers about a run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from dashboard.logs.logged_settings import logged_settings

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])


@router.get("/runs/{run_id}/loggers")
def loggers(
    service: TheService,
    run_id: str,
    attempt: Annotated[int | None, Query(ge=1, le=10**6, description="By default the latest.")] = None,
) -> Response:
    """Hyperparameters (`config`), tags, summary and mode of each logger that the script calls beside event files."""
    run = service.run(run_id)
    return answer(logged_settings(service, run_id, attempt or run.attempt))
