"""Checkpoints of a run, and their bytes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Literal

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.service.service import Service
from dashboard.storage.checkpoint_form import CheckpointForm
from dashboard.storage.conversion import Rewritten
from dashboard.storage.downloads import CheckpointResponse
from dashboard.storage.place import Via
from db.models import Checkpoint
from db.queries import run_queries

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["checkpoints"])
WAIT_S = 20.0
"""A rewrite that takes longer is asked for again: no proxy must break the connection meanwhile."""
LONGEST_NOTE = 4000


@router.get("/runs/{run_id}/checkpoints")
def list_checkpoints(service: TheService, run_id: str) -> Response:
    """A run's checkpoints, newest first, also those on their way."""
    service.run(run_id)
    return answer(run_queries.checkpoints(service.store, run_id))


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
    """The file: Range, ETag and If-Range are understood.

    `via=bucket` answers with the address of the object in its bucket where it is in one, `via=server` with the bytes;
    which is the default is a setting.

    `prefix=strip` takes a wrapper's `module.` off the names, `format=safetensors` gives the state dict alone; such
    a file is written first. That takes a while for large ones: 503 with Retry-After says to ask again.
    """
    found = await run_in_threadpool(run_queries.checkpoint_file, service.store, checkpoint_id)
    if found is None:
        raise Rejection(404, f"There is no checkpoint {checkpoint_id}.")
    form = CheckpointForm(strip=prefix == "strip", safetensors=format == "safetensors")
    way: Via = via or ("bucket" if service.settings.checkpoints_redirect else "server")
    if form.is_as_saved:
        return await run_in_threadpool(service.places.response, request, found[0], way)
    rewritten = await _rewritten(service, found[0], form)
    return await run_in_threadpool(_response, service, request, found[0], form, rewritten)


async def _rewritten(service: Service, checkpoint: Checkpoint, form: CheckpointForm) -> Rewritten:
    future: Future[Rewritten] = await run_in_threadpool(service.rewrites.wish, checkpoint, form)
    until = asyncio.get_running_loop().time() + WAIT_S
    while not future.done():
        if asyncio.get_running_loop().time() > until:
            refusal = Rejection(503, "The checkpoint is being rewritten; ask again in a few seconds.")
            refusal.headers = {"Retry-After": "5"}
            raise refusal
        await asyncio.sleep(0.05)
    return future.result()


def _response(
    service: Service, request: Request, checkpoint: Checkpoint, form: CheckpointForm, rewritten: Rewritten
) -> Response:
    shown = "".join(c if c.isprintable() else "?" for c in " ".join(rewritten.notes))
    headers = {"X-Rankzero-Note": shown.encode("ascii", "backslashreplace").decode()[:LONGEST_NOTE]}
    if rewritten.path is None:
        return service.places.response(request, checkpoint, "server", headers)
    name = form.file_name(checkpoint.path)
    return CheckpointResponse.of_file(request, rewritten.path, rewritten.sha256, name, headers)
