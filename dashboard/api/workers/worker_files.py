"""Logs and event files from workers, and code snapshots for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheNode, TheService, TheThreads
from dashboard.api.reading import JsonRoute
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.service.service import Service
from dashboard.storage.downloads import DigestResponse
from dashboard.storage.log_times import note_arrival
from db.queries import desired_state
from db.reports import progress

router = APIRouter(route_class=JsonRoute, prefix="/api/worker", tags=["workers"])
FILES = "/attempts/{fence}/parts/{node_rank}/files"
Path_ = Annotated[str, Query(min_length=1, max_length=4096)]
Generation = Annotated[int, Query(ge=0, le=2**31)]
Offset = Annotated[int, Query(ge=0, le=2**62)]


@router.get(FILES)
async def file_offsets(
    service: TheService,
    threads: TheThreads,
    node_id: TheNode,
    fence: int,
    node_rank: int,
    path: Path_,
    generation: Generation = 0,
) -> Response:
    """The size of the mirrored file, and the offset up to which its points are stored."""
    size, points = await threads.run(
        progress.file_offsets, service.store, node_id, fence, node_rank, path, generation
    )
    return answer({"offset": size, "points_offset": points})


@router.put(FILES)
async def append(
    request: Request,
    service: TheService,
    threads: TheThreads,
    node_id: TheNode,
    fence: int,
    node_rank: int,
    path: Path_,
    generation: Generation,
    offset: Offset,
) -> Response:
    """Append bytes to a mirrored file; they are accepted only at the server's own offset."""
    content = await request.body()
    key = (fence, node_rank, path, generation)
    was_appended, stored_bytes = await threads.run(_append, service, node_id, key, offset, content)
    return answer({"offset": stored_bytes}, 200 if was_appended else 416)


@router.get("/snapshots/{sha256}")
async def send_snapshot(
    request: Request, service: TheService, threads: TheThreads, node_id: TheNode, sha256: str
) -> Response:
    """The code of a run that the node is to start. Raises Rejection when no run of the node uses it."""
    assignments = await threads.run(desired_state.assignments, service.store, node_id)
    if sha256 not in {assignment.spec.snapshot for assignment in assignments}:
        raise Rejection(403, f"No run of this node uses the snapshot {sha256[:12]}.")
    path, name = service.snapshots.path(sha256), f"{sha256[:12]}.tar"
    return DigestResponse.of_file(request, path, sha256, name, media_type="application/x-tar")


def _append(
    service: Service, node_id: str, key: tuple[int, int, str, int], offset: int, content: bytes
) -> tuple[bool, int]:
    with service.files.locked(key), service.store.alone(f"file {key}"):
        file_id, stored_bytes = progress.file_for_append(service.store, node_id, *key)
        if offset != stored_bytes:
            return False, stored_bytes
        service.files.append(file_id, offset, content)
        if content and key[2].startswith("logs/"):
            at_ms = round(service.clock() * 1000)
            note_arrival(service.files.arrivals(file_id), offset, offset + len(content), at_ms)
        end = progress.file_grew(service.store, file_id, offset, offset + len(content))
    service.file_grew(key[0])
    return True, end
