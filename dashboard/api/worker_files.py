"""What workers send: stretches of logs and event files, and checkpoints."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dashboard.api.context import TheNode, TheService, TheThreads, Threads
from dashboard.documents import answer
from dashboard.downloads import CheckpointResponse, SnapshotResponse
from dashboard.refusals import Rejection
from dashboard.service import Service
from db import checkpoints, progress, queries
from db.models import Checkpoint
from db.states import CheckpointOffer

router = APIRouter(prefix="/api/worker", tags=["workers"])
FILES = "/attempts/{fence}/parts/{node_rank}/files"
MIB = 1024 * 1024
BATCH_BYTES = 4 * MIB
"""A checkpoint is made durable in stretches of this size, and resumes at the end of the last one."""
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
    """How far a file has been mirrored, and up to where its points are stored."""
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
    """Append bytes to a mirrored file; they are taken only at the offset the server has."""
    content = await request.body()
    key = (fence, node_rank, path, generation)
    taken, have = await threads.run(_append, service, node_id, key, offset, content)
    return answer({"offset": have}, 200 if taken else 416)


@router.post("/attempts/{fence}/parts/{node_rank}/checkpoints")
async def offer_checkpoint(
    service: TheService,
    threads: TheThreads,
    node_id: TheNode,
    fence: int,
    node_rank: int,
    offer: CheckpointOffer,
) -> Response:
    """Offer a finished snapshot; the answer says from which byte on it is wanted."""
    return answer(await threads.run(_offer, service, node_id, fence, node_rank, offer))


@router.put("/checkpoints/{checkpoint_id}/data")
async def receive_checkpoint(
    request: Request,
    service: TheService,
    threads: TheThreads,
    node_id: TheNode,
    checkpoint_id: int,
    offset: Offset,
) -> Response:
    """Take the bytes of a checkpoint from an offset on; what has arrived stays when the connection breaks."""
    checkpoint, have = await threads.run(_resume_point, service, node_id, checkpoint_id)
    if checkpoint.complete or offset != have:
        return answer({"offset": have}, 416)
    upload = _Upload(service, threads, checkpoint, offset)
    try:
        await upload.take(request)
    except (ClientDisconnect, asyncio.CancelledError):
        await asyncio.shield(asyncio.ensure_future(upload.flush()))
        raise
    return answer({"offset": upload.offset})


@router.post("/checkpoints/{checkpoint_id}/complete")
async def complete_checkpoint(
    service: TheService,
    threads: TheThreads,
    node_id: TheNode,
    checkpoint_id: int,
    adopted: Annotated[str | None, Body(embed=True)] = None,
) -> Response:
    """Check the SHA-256 and list the checkpoint."""
    await threads.run(_complete, service, node_id, checkpoint_id, adopted)
    return answer({"complete": True})


@router.get("/checkpoints/{checkpoint_id}/file")
async def send_checkpoint(
    request: Request, service: TheService, threads: TheThreads, node_id: TheNode, checkpoint_id: int
) -> Response:
    """A checkpoint for a node that resumes from it."""
    found = await threads.run(queries.checkpoint_file, service.store, checkpoint_id)
    wanted = await threads.run(queries.assignments, service.store, node_id)
    if found is None or checkpoint_id not in {a.resume_from.checkpoint_id for a in wanted if a.resume_from}:
        raise Rejection(403, f"No run of this node resumes from checkpoint {checkpoint_id}.")
    return CheckpointResponse.of(request, service.files.checkpoint(checkpoint_id), found[0])


@router.get("/snapshots/{sha256}")
async def send_snapshot(
    request: Request, service: TheService, threads: TheThreads, node_id: TheNode, sha256: str
) -> Response:
    """The code of a run that the node is to start."""
    wanted = await threads.run(queries.assignments, service.store, node_id)
    if sha256 not in {assignment.spec.snapshot for assignment in wanted}:
        raise Rejection(403, f"No run of this node uses the snapshot {sha256[:12]}.")
    return SnapshotResponse.of(request, service.snapshots.path(sha256), sha256)


class _Upload:
    """One request that brings bytes of a checkpoint. A newer one takes its place, should this one hang."""

    def __init__(self, service: Service, threads: Threads, checkpoint: Checkpoint, offset: int) -> None:
        self._service = service
        self._threads = threads
        self._checkpoint = checkpoint
        self._buffer = bytearray()
        self.offset = offset
        service.uploads[checkpoint.id] = self

    async def take(self, request: Request) -> None:
        """Write the body down as it comes."""
        limit = self._checkpoint.size_bytes
        async for chunk in request.stream():
            if self.offset + len(self._buffer) + len(chunk) > limit:
                raise Rejection(413, f"The checkpoint was offered with {limit} bytes; more than that came.")
            self._buffer += chunk
            if len(self._buffer) >= BATCH_BYTES:
                await self.flush()
        await self.flush()

    async def flush(self) -> None:
        """Make what has come durable."""
        if self._buffer:
            content, self._buffer = bytes(self._buffer), bytearray()
            await self._threads.run(self._write, content)

    def _write(self, content: bytes) -> None:
        service, checkpoint_id = self._service, self._checkpoint.id
        with service.files.alone_with(("checkpoint", checkpoint_id)):
            if service.uploads.get(checkpoint_id) is not self:
                raise Rejection(409, "Another request has taken over this upload.")
            service.files.add_to_checkpoint(checkpoint_id, self.offset, content)
            self.offset += len(content)
            checkpoints.received(service.store, checkpoint_id, self.offset)


def _append(
    service: Service, node_id: str, key: tuple[int, int, str, int], offset: int, content: bytes
) -> tuple[bool, int]:
    with service.files.alone_with(key), service.store.alone(f"file {key}"):
        file_id, have = progress.file_for_append(service.store, node_id, *key)
        if offset != have:
            return False, have
        service.files.append(file_id, offset, content)
        end = progress.file_grew(service.store, file_id, offset, offset + len(content))
    service.file_grew(key[0])
    return True, end


def _offer(
    service: Service, node_id: str, fence: int, node_rank: int, offer: CheckpointOffer
) -> dict[str, object]:
    if offer.size_bytes > service.settings.max_checkpoint_bytes:
        limit = service.settings.max_checkpoint_bytes
        raise Rejection(413, f"size_bytes must be at most {limit}, got {offer.size_bytes}.", "size_bytes")
    found = checkpoints.offered(service.store, node_id, fence, node_rank, offer, service.clock())
    return {"checkpoint_id": found.id, "offset": _have(service, found), "complete": found.complete}


def _resume_point(service: Service, node_id: str, checkpoint_id: int) -> tuple[Checkpoint, int]:
    checkpoint, _ = checkpoints.of_node(service.store, node_id, checkpoint_id)
    have = _have(service, checkpoint)
    if not checkpoint.complete:
        service.files.require_room(checkpoint.size_bytes - have)
    return checkpoint, have


def _have(service: Service, checkpoint: Checkpoint) -> int:
    if checkpoint.complete:
        return checkpoint.size_bytes
    return min(checkpoint.received_bytes, service.files.arrived_bytes(checkpoint.id))


def _complete(service: Service, node_id: str, checkpoint_id: int, adopted: str | None) -> None:
    checkpoint, run_id = checkpoints.of_node(service.store, node_id, checkpoint_id)
    if checkpoint.complete:
        return
    with service.files.alone_with(("checkpoint", checkpoint_id)):
        agrees = service.files.finish(checkpoint_id, adopted, checkpoint.size_bytes, checkpoint.sha256)
        if not agrees:
            checkpoints.received(service.store, checkpoint_id, 0)
            raise Rejection(422, "The SHA-256 is not the one that was offered; send the checkpoint again.")
        overwritten = checkpoints.completed(service.store, checkpoint_id, service.clock())
        service.files.remove([], overwritten)
    service.uploads.pop(checkpoint_id, None)
    service.checkpoint_stored(run_id, checkpoint_id)
