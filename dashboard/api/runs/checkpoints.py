"""A run's checkpoints: the list, and downloads of their bytes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.audit import write_down_download
from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.service.service import Service
from dashboard.storage.checkpoint_storage import Via
from db.checkpoints import checkpoint_queries
from db.models import Checkpoint
from db.people.ownership import ObjectKind

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["checkpoints"])
Former = Annotated[str, Query(max_length=100, deprecated=True, description="Refused: merge the checkpoint.")]
NOT_CONVERTED = (
    "The server does not convert checkpoints: POST /api/checkpoints/{id}/merge has a node write safetensors with plain "
    "names, which is listed as a checkpoint of its own to download (`rankzero checkpoint merge`)."
)


@router.get("/runs/{run_id}/checkpoints")
def list_checkpoints(service: TheService, run_id: str) -> Response:
    """A run's checkpoints, newest first, including those still being uploaded."""
    return answer(checkpoint_queries.checkpoints(service.store, run_id))


@router.post("/checkpoints/{checkpoint_id}/send-again", status_code=202)
def send_again(service: TheService, checkpoint_id: int) -> Response:
    """Have its node resend a checkpoint that never fully arrived; its attempt must have ended."""
    run_id = service.send_checkpoint_again(checkpoint_id)
    saved = checkpoint_queries.checkpoints(service.store, run_id)
    return answer(next(checkpoint for checkpoint in saved if checkpoint.id == checkpoint_id), 202)


@router.get("/checkpoints/{checkpoint_id}/file")
@router.head("/checkpoints/{checkpoint_id}/file", include_in_schema=False)
async def download(
    request: Request,
    service: TheService,
    checkpoint_id: int,
    via: Via | None = None,
    prefix: Former = "keep",
    format: Former = "saved",
) -> Response:
    """The checkpoint's file, with Range, ETag and If-Range. Raises Rejection when there is none.

    `via=bucket` redirects to the object in its bucket where it is stored in one, `via=server` sends the bytes;
    a setting chooses the default.
    """
    row = await run_in_threadpool(checkpoint_queries.checkpoint_file, service.store, checkpoint_id)
    if row is None:
        raise Rejection(404, f"There is no checkpoint {checkpoint_id}.")
    if (prefix, format) != ("keep", "saved"):
        raise Rejection(422, NOT_CONVERTED, "prefix" if prefix != "keep" else "format")
    checkpoint, run_id = row
    route: Via = via or ("bucket" if service.settings.checkpoints_redirect else "server")
    await run_in_threadpool(_write_down, request, service, checkpoint, run_id)
    return await run_in_threadpool(service.storages.response, request, checkpoint, route)


def _write_down(request: Request, service: Service, checkpoint: Checkpoint, run_id: str) -> None:
    object_name = f"checkpoint {checkpoint.path} of run {run_id}"
    write_down_download(request, service, object_name, ObjectKind.CHECKPOINT, str(checkpoint.id))
