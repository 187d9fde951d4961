"""Logs, event files and pieces of streams from workers, and code snapshots for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheNode, TheService, TheThreads, Threads, node_of
from dashboard.api.reading import JsonRoute
from dashboard.errors import Rejection, failure
from dashboard.json_responses import answer
from dashboard.service.service import Service
from dashboard.service.stream_pieces import Outcome, Piece, take
from dashboard.storage.downloads import DigestResponse
from db.identity import UnknownAttempt
from db.tasks import desired_state, task_reports
from db.tasks.task_reports import StreamKey
from domain.messages import Bundle, PieceHead, PointBatch

router = APIRouter(route_class=JsonRoute, prefix="/api/worker", tags=["workers"])
FILES = "/attempts/{fence}/tasks/{node_rank}/files"
Path_ = Annotated[str, Query(min_length=1, max_length=4096)]
Generation = Annotated[int, Query(ge=0, le=2**31)]

_BUNDLE = {"schema": {"type": "string", "format": "binary", "title": "a bundle of pieces"}}
"""OpenAPI entry of a body that `domain/messages.py` reads."""


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
        task_reports.file_offsets, service.store, node_id, fence, node_rank, path, generation
    )
    return answer({"offset": size, "points_offset": points})


@router.post("/pieces", openapi_extra={"requestBody": {"content": {"application/octet-stream": _BUNDLE}}})
async def take_pieces(request: Request) -> Response:
    """Take pieces of several streams (`domain/messages.py`); the answer has one for each, as if it had come alone."""
    service: Service = request.app.state.service
    threads: Threads = request.app.state.threads
    node_id, body = await node_of(request), await request.body()
    outcomes = await threads.run(_take, service, node_id, body)
    answers = ",".join(_answer_to(request, outcome) for outcome in outcomes)
    return Response(f'{{"answers":[{answers}]}}', media_type="application/json")


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


def _take(service: Service, node_id: str, body: bytes) -> list[Outcome]:
    bundle = Bundle.of_body(body)
    read = [_piece(service, head, content) for head, content in zip(bundle.heads, bundle.contents, strict=True)]
    outcomes = iter(take(service, node_id, [piece for piece in read if isinstance(piece, Piece)]))
    return [next(outcomes) if isinstance(piece, Piece) else piece for piece in read]


def _piece(service: Service, head: PieceHead, content: bytes) -> Piece | Exception:
    """The piece, or why it cannot be taken: another store's attempt, or a content that is no batch of points."""
    try:
        if not service.lineage.remembers(head.fence, head.label):
            service.lineage.check(head.fence, head.label or None)
        if head.path:
            stream = StreamKey(head.fence, head.node_rank, head.path, head.generation)
            return Piece(stream, offset=head.offset, content=content)
        batch = PointBatch.model_validate_json(content)
        return Piece(StreamKey(head.fence, head.node_rank, batch.path, batch.generation), batch)
    except (UnknownAttempt, HTTPException, ValidationError) as error:
        return error


def _answer_to(request: Request, outcome: Outcome) -> str:
    if isinstance(outcome, Exception):
        response = failure(request, outcome)
        return f'{{"status":{response.status_code},"body":{bytes(response.body).decode()}}}'
    return f'{{"status":{200 if outcome.is_stored else 416},"body":{{"offset":{outcome.offset}}}}}'
