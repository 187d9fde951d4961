"""Checkpoints of a run, and their bytes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.documents import answer
from dashboard.downloads import CheckpointResponse
from dashboard.refusals import Rejection
from db import queries

router = APIRouter(prefix="/api", tags=["checkpoints"])


@router.get("/runs/{run_id}/checkpoints")
def list_checkpoints(service: TheService, run_id: str) -> Response:
    """A run's checkpoints, newest first, also those on their way."""
    service.run(run_id)
    return answer(queries.checkpoints(service.store, run_id))


@router.get("/checkpoints/{checkpoint_id}/file")
@router.head("/checkpoints/{checkpoint_id}/file", include_in_schema=False)
def download(request: Request, service: TheService, checkpoint_id: int) -> Response:
    """The file itself: Range, ETag and If-Range are understood."""
    found = queries.checkpoint_file(service.store, checkpoint_id)
    if found is None:
        raise Rejection(404, f"There is no checkpoint {checkpoint_id}.")
    return CheckpointResponse.of(request, service.files.checkpoint(checkpoint_id), found[0])
