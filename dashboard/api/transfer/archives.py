"""Archives of runs from other installations."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import CheckpointThreads, TheService, Threads
from dashboard.api.reading import JsonRoute
from dashboard.archives.importing import import_archive
from dashboard.json_responses import answer
from dashboard.service.service import Service

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
PIECE_BYTES = 1024 * 1024
SPACE_CHECKED_EVERY_BYTES = 64 * PIECE_BYTES


@router.post("/archives", status_code=201)
async def receive(
    request: Request,
    service: TheService,
    threads: CheckpointThreads,
    source: Annotated[str, Query(max_length=4096, description="The machine and path of the archive.")] = "",
) -> Response:
    """Import the runs of an archive, which is the body: `[{"id", "name", "series", "points", "is_new"}]`.

    Names, sizes and digests are checked first, and nothing in it is executed. Raises Rejection, InvalidRequest,
    WrongState."""
    with tempfile.TemporaryDirectory(prefix="archive", dir=service.files.incoming) as folder:
        path, unpacked = Path(folder) / "archive.zip", Path(folder) / "files"
        unpacked.mkdir()
        await _write_body(request, threads, service, path)
        imported = await run_in_threadpool(import_archive, service, path, unpacked, source)
    return answer(imported, 201)


async def _write_body(request: Request, threads: Threads, service: Service, path: Path) -> None:
    """Write the body to a new file as it arrives, while the disk has space for it. Raises Rejection."""
    buffer, unchecked = bytearray(), SPACE_CHECKED_EVERY_BYTES

    def flush() -> None:
        with path.open("ab") as file:
            file.write(buffer)
        buffer.clear()

    service.files.require_free_space(int(request.headers.get("content-length", 0)))
    async for chunk in request.stream():
        buffer += chunk
        unchecked -= len(chunk)
        if len(buffer) >= PIECE_BYTES:
            await threads.run(flush)
        if unchecked <= 0:
            service.files.require_free_space(0)
            unchecked = SPACE_CHECKED_EVERY_BYTES
    await threads.run(flush)
