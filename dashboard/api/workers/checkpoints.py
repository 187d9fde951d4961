"""Checkpoints between workers and the storage of the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query
from pydantic import StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import CheckpointThreads, TheNode, ThePrincipal, TheService, Threads, require_own
from dashboard.api.reading import JsonRoute
from dashboard.api.request_body import RequestBody, body_of
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.pushes import asking
from dashboard.service.service import Service
from dashboard.storage.checkpoint_storage import CheckpointStorage, Via
from dashboard.storage.files import pieces
from dashboard.storage.s3 import BucketTrouble
from db.checkpoints import checkpoint_queries, checkpoint_reports
from db.exceptions import NotOwner
from db.models import Checkpoint
from db.tasks import desired_state
from domain.checkpoint_use.tasks import CheckpointTaskReport
from domain.messages import CheckpointOffer

log = logging.getLogger("rankzero")
router = APIRouter(route_class=JsonRoute, prefix="/api/worker", tags=["workers"])
MOST_PARTS = 10_000
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Offset = Annotated[int, Query(ge=0, le=2**62)]


async def _owner_of(
    service: TheService, threads: CheckpointThreads, principal: ThePrincipal, node_id: TheNode, checkpoint_id: int
) -> str:
    """The node, unless its request has the token of an attempt other than the checkpoint's. Raises Rejection."""
    if principal.attempt is not None:
        checkpoint, _ = await threads.run(checkpoint_reports.of_node, service.store, node_id, checkpoint_id)
        require_own(principal, checkpoint.fence)
    return node_id


OwnCheckpoint = Annotated[str, Depends(_owner_of)]


@router.post("/attempts/{fence}/tasks/{node_rank}/checkpoints")
async def offer_checkpoint(
    service: TheService,
    threads: CheckpointThreads,
    node_id: TheNode,
    fence: int,
    node_rank: int,
    offer: CheckpointOffer,
) -> Response:
    """Offer a finished snapshot; the response has the offset to send from, and the batch size."""
    return answer(await threads.run(_offer, service, node_id, fence, node_rank, offer))


@router.put("/checkpoints/{checkpoint_id}/data")
async def receive_checkpoint(
    request: Request,
    service: TheService,
    threads: CheckpointThreads,
    node_id: OwnCheckpoint,
    checkpoint_id: int,
    offset: Offset,
) -> Response:
    """Store the bytes of a checkpoint from an offset on; received bytes stay when the connection breaks."""
    upload = await threads.run(_begun, service, threads, node_id, checkpoint_id, offset)
    if isinstance(upload, int):
        return answer({"offset": upload}, 416)
    try:
        await upload.take(body_of(request))
    finally:
        await asyncio.shield(asyncio.ensure_future(upload.settle()))
    return answer({"offset": upload.offset})


@router.post("/checkpoints/{checkpoint_id}/parts")
async def link_parts(
    service: TheService,
    threads: CheckpointThreads,
    node_id: OwnCheckpoint,
    checkpoint_id: int,
    first: Annotated[int, Body(ge=1, le=MOST_PARTS)],
    sha256: Annotated[list[Sha256], Body(min_length=1, max_length=16)],
) -> Response:
    """Signed addresses in the bucket for parts from number `first` on, each for bytes of that SHA-256 only."""
    links = await threads.run(_links, service, node_id, checkpoint_id, first, sha256)
    return answer({"links": links})


@router.post("/checkpoints/{checkpoint_id}/complete")
async def complete_checkpoint(
    service: TheService,
    threads: CheckpointThreads,
    node_id: OwnCheckpoint,
    checkpoint_id: int,
    adopted: Annotated[str | None, Body(embed=True)] = None,
    parts: Annotated[list[Sha256] | None, Body(embed=True, max_length=MOST_PARTS)] = None,
) -> Response:
    """Check the SHA-256 and list the checkpoint. `parts`: the SHA-256 of each part, for a bucket."""
    sha256 = await threads.run(_complete, service, node_id, checkpoint_id, adopted, parts or [])
    return answer({"checkpoint_id": checkpoint_id, "sha256": sha256, "complete": True})


@router.post("/checkpoints/{checkpoint_id}/resent")
async def resent_checkpoint(
    service: TheService,
    threads: CheckpointThreads,
    node_id: OwnCheckpoint,
    checkpoint_id: int,
    problem: Annotated[str | None, Body(embed=True, max_length=1000)] = None,
) -> Response:
    """Take a node's answer to the request to send a checkpoint again: it did, or why it could not."""
    await threads.run(_resent, service, node_id, checkpoint_id, problem)
    return answer({"checkpoint_id": checkpoint_id})


@router.post("/attempts/{fence}/checkpoint-tasks/{task_id}")
async def report_task(
    service: TheService,
    threads: CheckpointThreads,
    node_id: TheNode,
    fence: int,
    task_id: int,
    report: CheckpointTaskReport,
) -> Response:
    """Take a node's report on its work on a checkpoint of an attempt; it may be repeated."""
    await threads.run(service.checkpoint_tasks.reported, node_id, fence, task_id, report)
    return answer({"task_id": task_id})


@router.get("/attempts/{fence}/checkpoint-tasks/{task_id}/push")
async def push_details(
    service: TheService, threads: CheckpointThreads, principal: ThePrincipal, node_id: TheNode, fence: int, task_id: int
) -> Response:
    """The secrets and the model card of a push that the node begins. Raises Rejection for a token of an attempt: the
    secrets may be another person's than the run."""
    if principal.attempt is not None:
        raise Rejection(403, "Only the node's own token reads what a push needs, not that of an attempt.")
    return answer(await threads.run(asking.details, service, node_id, fence, task_id))


@router.get("/checkpoints/{checkpoint_id}/file")
async def send_checkpoint(
    request: Request,
    service: TheService,
    threads: CheckpointThreads,
    principal: ThePrincipal,
    node_id: TheNode,
    checkpoint_id: int,
    via: Via = "server",
) -> Response:
    """A checkpoint for a node that resumes from it, or works on it. Raises Rejection when no run or task does."""
    row = await threads.run(checkpoint_queries.checkpoint_file, service.store, checkpoint_id)
    assignments = await threads.run(desired_state.live_assignments, service.store, node_id, principal.attempt)
    resumed = {a.resume_from.checkpoint_id for a in assignments if a.resume_from}
    resumed |= await threads.run(service.checkpoint_tasks.sources, node_id, principal.attempt)
    if row is None or checkpoint_id not in resumed:
        raise Rejection(403, f"No run or task of this node starts from checkpoint {checkpoint_id}.")
    return await threads.run(service.storages.response, request, row[0], via)


class _Upload:
    """One request that uploads bytes of a checkpoint. A newer request replaces it, in case it hangs."""

    def __init__(self, service: Service, threads: Threads, checkpoint: Checkpoint, offset: int) -> None:
        self._service = service
        self._threads = threads
        self._checkpoint = checkpoint
        self._piece_bytes = service.storages.of(checkpoint).piece_bytes(checkpoint.size_bytes)
        self._arriving, self._arrived_bytes = memoryview(b""), 0
        self._writing: asyncio.Future[None] | None = None
        self._taken_bytes = self._durable_bytes = self.offset = offset
        service.uploads[checkpoint.id] = self

    async def take(self, body: RequestBody) -> None:
        """Write the body as it arrives. Raises Rejection when it is longer than offered."""
        limit = self._checkpoint.size_bytes
        while True:
            if not self._arriving:  # up to a multiple of a piece, so that whole blocks of the disk are written
                room = self._piece_bytes - self._taken_bytes % self._piece_bytes
                self._arriving = memoryview(pieces.take(self._piece_bytes))[:room]
            count = await body.read_into(self._arriving[self._arrived_bytes :])
            self._arrived_bytes += count
            self._taken_bytes += count
            if self._taken_bytes > limit:
                raise Rejection(413, f"The checkpoint was announced with {limit} bytes; the request has more.")
            if not count:
                return
            if self._arrived_bytes == len(self._arriving):
                await self._write()

    async def settle(self) -> None:
        """Write what has arrived, make all that is written durable, and record it."""
        try:
            await self._write()
            await self._write()  # the last piece has been written, too
        finally:
            if self.offset != self._durable_bytes:
                await self._threads.run(self._sync)

    async def _write(self) -> None:
        """Write the arrived piece while the next arrives. Raises what happened to the piece before it."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
        piece = self._arriving[: self._arrived_bytes]
        self._arriving, self._arrived_bytes = memoryview(b""), 0
        if piece:
            self._writing = asyncio.ensure_future(self._threads.run(self._add, piece))

    def _add(self, piece: memoryview) -> None:
        with self._mine() as storage:
            self.offset = storage.add(self._checkpoint, self.offset, piece)
        pieces.give_back(piece)

    def _sync(self) -> None:
        with self._mine() as storage:
            storage.sync(self._checkpoint)
            with _nothing_left(self._service, self._checkpoint.id):
                checkpoint_reports.received(self._service.store, self._checkpoint.id, self.offset)

    @contextmanager
    def _mine(self) -> Iterator[CheckpointStorage]:
        """The storage, for this request alone. Raises Rejection when another one has taken over."""
        service, checkpoint = self._service, self._checkpoint
        with service.files.locked_checkpoint(checkpoint.id), _storage_of(service, checkpoint) as storage:
            if service.uploads.get(checkpoint.id) is not self:
                raise Rejection(409, "Another request has taken over this upload.")
            yield storage


def _offer(service: Service, node_id: str, fence: int, node_rank: int, offer: CheckpointOffer) -> dict[str, object]:
    if offer.size_bytes > service.settings.max_checkpoint_bytes:
        limit = service.settings.max_checkpoint_bytes
        raise Rejection(413, f"size_bytes must be at most {limit}, got {offer.size_bytes}.", "size_bytes")
    checkpoint = checkpoint_reports.offered(
        service.store, node_id, fence, node_rank, offer, service.clock(), service.storages.locate
    )
    if not checkpoint.complete and (run_id := service.run_of(fence)):
        service.hub.publish(run_id, {"type": "checkpoints"})
    with _storage_of(service, checkpoint) as storage:
        return {
            "checkpoint_id": checkpoint.id,
            "offset": _received_bytes(storage, checkpoint, refresh=True),
            "complete": checkpoint.complete or checkpoint.deleted_at is not None,
            "batch_bytes": storage.batch_bytes(checkpoint.size_bytes),
            "part_bytes": storage.part_bytes(checkpoint.size_bytes),
        }


def _begun(service: Service, threads: Threads, node_id: str, checkpoint_id: int, offset: int) -> _Upload | int:
    """The upload, taken over from any other request; if it continues at another offset, that one."""
    with service.files.locked_checkpoint(checkpoint_id):
        checkpoint, _ = checkpoint_reports.of_node(service.store, node_id, checkpoint_id)
        storage = service.storages.of(checkpoint)
        received_bytes = _received_bytes(storage, checkpoint, refresh=False)
        if checkpoint.complete or offset != received_bytes:
            return received_bytes
        storage.require_free_space(checkpoint.size_bytes - received_bytes)
        return _Upload(service, threads, checkpoint, offset)


def _received_bytes(storage: CheckpointStorage, checkpoint: Checkpoint, *, refresh: bool) -> int:
    is_sent = checkpoint.complete or checkpoint.deleted_at is not None  # nobody wants what was deleted again
    return checkpoint.size_bytes if is_sent else storage.durable_bytes(checkpoint, refresh=refresh)


def _links(
    service: Service, node_id: str, checkpoint_id: int, first: int, sha256s: list[str]
) -> list[dict[str, object]]:
    checkpoint, _ = checkpoint_reports.of_node(service.store, node_id, checkpoint_id)
    if checkpoint.complete:
        raise Rejection(409, f"Checkpoint {checkpoint_id} is complete; no part of it is needed.")
    with service.files.locked_checkpoint(checkpoint_id), _storage_of(service, checkpoint) as storage:
        links = storage.links(checkpoint, first, sha256s)
    return [{"url": link.url, "headers": dict(link.headers)} for link in links]


def _complete(service: Service, node_id: str, checkpoint_id: int, adopted: str | None, part_sha256s: list[str]) -> str:
    """Verify and list it; return the SHA-256 of what is stored."""
    with service.files.locked_checkpoint(checkpoint_id):
        checkpoint, run_id = checkpoint_reports.of_node(service.store, node_id, checkpoint_id)
        if checkpoint.complete:  # perhaps by an earlier request, whose answer took too long
            return checkpoint.sha256
        with _storage_of(service, checkpoint) as storage:
            is_intact = storage.finish(checkpoint, adopted, part_sha256s)
        if not is_intact:
            checkpoint_reports.received(service.store, checkpoint_id, 0)
            raise Rejection(422, "The SHA-256 differs from the announced one; send the checkpoint again.")
        with _nothing_left(service, checkpoint_id):
            overwritten = checkpoint_reports.completed(service.store, checkpoint_id, service.clock())
        service.files.remove([], overwritten)
    service.uploads.pop(checkpoint_id, None)
    service.checkpoint_stored(run_id, checkpoint_id)
    return checkpoint.sha256


def _resent(service: Service, node_id: str, checkpoint_id: int, problem: str | None) -> None:
    _, run_id = checkpoint_reports.of_node(service.store, node_id, checkpoint_id)
    checkpoint_reports.resent(service.store, checkpoint_id, problem, service.clock())
    service.hub.desired_state_changed([node_id])
    for news in ("checkpoints", "history"):
        service.hub.publish(run_id, {"type": news})


@contextmanager
def _nothing_left(service: Service, checkpoint_id: int) -> Iterator[None]:
    """Remove a checkpoint's bytes where its run was erased while they arrived. Raises NotOwner then."""
    try:
        yield
    except NotOwner:
        service.files.remove([], [checkpoint_id])
        raise


@contextmanager
def _storage_of(service: Service, checkpoint: Checkpoint) -> Iterator[CheckpointStorage]:
    """The checkpoint's storage. A failure is recorded with the checkpoint, and the worker tries again."""
    try:
        yield service.storages.of(checkpoint)
    except BucketTrouble as trouble:
        if checkpoint_reports.troubled(service.store, checkpoint.id, str(trouble), service.clock()):
            log.warning("checkpoint %d waits: %s", checkpoint.id, trouble)
            if run_id := service.run_of(checkpoint.fence):
                service.hub.publish(run_id, {"type": "checkpoints"})
                service.hub.publish(run_id, {"type": "history"})
        raise Rejection(503, str(trouble)) from trouble
