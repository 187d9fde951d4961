"""A run's checkpoints: the list, and downloads of their bytes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Literal

from fastapi import APIRouter
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
from dashboard.storage.conversion import Conversion
from dashboard.storage.conversions import Converted
from dashboard.storage.downloads import DigestResponse
from db.checkpoints import checkpoint_queries
from db.models import Checkpoint
from db.people.ownership import ObjectKind

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["checkpoints"])
WAIT_S = 20.0
"""Longest wait for a conversion in seconds; the client then asks again, so that no proxy times out."""
LONGEST_NOTE = 4000


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
    prefix: Literal["keep", "strip"] = "keep",
    format: Literal["saved", "safetensors"] = "saved",
    via: Via | None = None,
) -> Response:
    """The checkpoint's file, with Range, ETag and If-Range. Raises Rejection when there is none.

    `via=bucket` redirects to the object in its bucket where it is stored in one, `via=server` sends the bytes;
    a setting chooses the default.

    `prefix=strip` removes a wrapper's `module.` from the names, `format=safetensors` gives the state dict alone. Such
    a file is written first; for a large checkpoint the answer is 503 with Retry-After until it is ready.
    """
    row = await run_in_threadpool(checkpoint_queries.checkpoint_file, service.store, checkpoint_id)
    if row is None:
        raise Rejection(404, f"There is no checkpoint {checkpoint_id}.")
    checkpoint, run_id = row
    conversion = Conversion(strip=prefix == "strip", safetensors=format == "safetensors")
    route: Via = via or ("bucket" if service.settings.checkpoints_redirect else "server")
    if conversion.is_as_saved:
        await run_in_threadpool(_write_down, request, service, checkpoint, run_id)
        return await run_in_threadpool(service.storages.response, request, checkpoint, route)
    converted = await _converted(service, checkpoint, conversion)
    await run_in_threadpool(_write_down, request, service, checkpoint, run_id)
    return await run_in_threadpool(_response, service, request, checkpoint, conversion, converted)


def _write_down(request: Request, service: Service, checkpoint: Checkpoint, run_id: str) -> None:
    object_name = f"checkpoint {checkpoint.path} of run {run_id}"
    write_down_download(request, service, object_name, ObjectKind.CHECKPOINT, str(checkpoint.id))


async def _converted(service: Service, checkpoint: Checkpoint, conversion: Conversion) -> Converted:
    future: Future[Converted] = await run_in_threadpool(service.conversions.request, checkpoint, conversion)
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not future.done():
        if asyncio.get_running_loop().time() > deadline:
            rejection = Rejection(503, "The checkpoint is being converted; ask again in a few seconds.")
            rejection.headers = {"Retry-After": "5"}
            raise rejection
        await service.clock.time.sleep(0.05)
    return future.result()


def _response(
    service: Service, request: Request, checkpoint: Checkpoint, conversion: Conversion, converted: Converted
) -> Response:
    notes = "".join(c if c.isprintable() else "?" for c in " ".join(converted.notes))
    headers = {"X-Rankzero-Note": notes.encode("ascii", "backslashreplace").decode()[:LONGEST_NOTE]}
    if converted.path is None:
        return service.storages.response(request, checkpoint, "server", headers)
    name = conversion.file_name(checkpoint.path)
    return DigestResponse.of_file(request, converted.path, converted.sha256, name, headers)
