"""Requests and reports of workers; every route checks that the task belongs to the reporting node."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheNode, ThePrincipal, TheService, TheThreads, Threads, node_of, require_own
from dashboard.api.reading import JsonRoute
from dashboard.errors import Rejection, failure
from dashboard.json_responses import answer, document, json_text
from dashboard.security.guard.auth import Principal
from dashboard.service.service import Service
from dashboard.service.stream_pieces import ArrivedPiece, Outcome, take
from dashboard.storage.downloads import DigestResponse
from db.checkpoints.checkpoint_requests import resends
from db.findings import findings
from db.health import hardware_tests
from db.identity import UnknownAttempt
from db.nodes import node_reports
from db.nodes.node_reports import Claim
from db.ranks import profiles, ranks
from db.tasks import desired_state, task_reports
from db.tasks.task_reports import StreamKey
from domain import protocol
from domain.assignments import Assignment
from domain.collectives import CollectivesAnswer, NodeCollectives
from domain.health.testing import TestAnswer
from domain.messages import (
    Bundle,
    CheckAnswer,
    Findings,
    JobReport,
    NodeFacts,
    NodeLoad,
    PieceHead,
    Stacks,
    TaskReport,
)
from domain.points import PackedBatch
from domain.profiles.records import RankProfile

router = APIRouter(route_class=JsonRoute, prefix="/api/worker", tags=["workers"])
TASK = "/attempts/{fence}/tasks/{node_rank}"
LONGEST_WAIT_S = 60.0


def _body_of(model: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI entry of a route that parses its body itself."""
    return {"requestBody": {"content": {"application/json": {"schema": model.model_json_schema()}}}}


class RegistrationRequest(NodeFacts):
    """A node's facts, and the identity it had before."""

    protocol: int = protocol.FIRST
    """Workers of the first version send none."""
    node_id: str | None = None
    again: bool = False
    """Whether the same process registers again."""


@router.post("/register")
async def register(
    service: TheService,
    threads: TheThreads,
    principal: ThePrincipal,
    registering: RegistrationRequest,
    rankzero_store: Annotated[str | None, Header()] = None,
) -> Response:
    """Register a worker; the response has its new token."""
    await threads.run(service.jobs.check_pool, registering.pool, principal.job, principal.node_id)
    facts = NodeFacts.model_validate(registering.model_dump(exclude={"node_id", "again"}))
    await threads.run(service.lineage.is_current, rankzero_store)
    facts.held = await threads.run(service.lineage.unknown, facts.held)
    claim = Claim(principal.node_id or registering.node_id, principal.node_id is not None, registering.again)
    registration = await threads.run(service.register, facts, claim, principal.join_token)
    await threads.run(service.schedule_in_turn)
    settings = service.settings
    return answer(
        {
            "node_id": registration.node_id,
            "token": registration.token,
            "protocol": protocol.PROTOCOL,
            "store": service.lineage.identity,
            "poll_wait_s": settings.poll_wait_s,
            "heartbeat_s": settings.heartbeat_s,
            "adopt": service.files.adoption() if service.storages.takes_adopted else None,
        }
    )


@router.get("/desired")
async def poll_desired_state(
    service: TheService,
    threads: TheThreads,
    node_id: TheNode,
    version: Annotated[str, Query(max_length=64)] = "",
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 20.0,
    rankzero_store: Annotated[str | None, Header()] = None,
) -> Response:
    """Everything the node should be running; waits until that differs from `version`."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait
    lineage = service.lineage
    is_current_store = rankzero_store and lineage.is_familiar(rankzero_store, ())
    if is_current_store or await threads.run(lineage.is_current, rankzero_store):
        # Otherwise it registers with its attempts before it counts as online.
        service.registry.record_contact(node_id)
    with service.hub.waiting(node_id) as changed:
        while True:
            changed.clear()
            state = service.idle_nodes.kept(node_id, lineage.identity)
            if state is None:
                state = await threads.run(_desired_state, service, node_id)
            current_version, text = state
            remaining_s = ends_at - loop.time()
            if current_version == version and remaining_s > 0 and not service.hub.closing:
                # A closed poll is not a heartbeat: nothing reports a node that lost its power.
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), remaining_s)
                    continue
            return Response(text, media_type="application/json")


@router.post("/load", openapi_extra=_body_of(NodeLoad))
async def load(request: Request) -> Response:
    """Take a sample of the node's load, which is also its heartbeat."""
    # Every node sends this every few seconds, so the route does as little as possible.
    service: Service = request.app.state.service
    sample, node_id = NodeLoad.model_validate_json(await request.body()), await node_of(request)
    header, lineage = request.headers.get("rankzero-store"), service.lineage
    if not lineage.is_familiar(header, sample.held):
        sample.held = await request.app.state.threads.run(lineage.unknown, sample.held)
        if not await request.app.state.threads.run(lineage.is_current, header):
            return answer({"node_id": node_id})
    else:
        sample.held = []
    service.registry.record_contact(node_id, sample)
    if service.wanted_wheels:
        wheels = document(service.wanted_wheels.offers(node_id, service.clock()))
        return answer({"node_id": node_id, "wheels": wheels})
    return answer({"node_id": node_id})


@router.get("/time")
async def time_now(node_id: TheNode, service: TheService) -> Response:
    """The machine's clock, for comparison with the node's own; it may jump, unlike the server's."""
    return answer({"now": service.clock.time.wall()})


@router.post("/jobs/{fence}")
def job(service: TheService, node_id: TheNode, fence: int, job_report: JobReport) -> Response:
    """Take a gateway's report on the Slurm job of an attempt; it may be repeated."""
    service.registry.record_contact(node_id)
    service.jobs.reported(node_id, fence, job_report)
    return answer({"fence": fence})


@router.post("/checks/{check_id}")
def answer_check(service: TheService, node_id: TheNode, check_id: int, check_answer: CheckAnswer) -> Response:
    """Take a node's result of one stage of a preflight; late and repeated results change nothing."""
    service.check_answered(node_id, check_id, check_answer)
    return answer({"check_id": check_id})


@router.post("/tests/{test_id}")
def answer_test(service: TheService, node_id: TheNode, test_id: int, test_answer: TestAnswer) -> Response:
    """Take a node's results of a test of its devices; late and repeated ones change nothing."""
    service.health.answered(node_id, test_id, test_answer)
    return answer({"test_id": test_id})


@router.post(TASK + "/report")
async def report(
    service: TheService,
    threads: TheThreads,
    node_id: TheNode,
    fence: int,
    node_rank: int,
    task_report: TaskReport,
) -> Response:
    """Take the node's report on its task; it may be repeated."""
    state = await threads.run(_report, service, node_id, fence, node_rank, task_report)
    return answer({"fence": fence, "node_rank": node_rank} | state)


@router.post(TASK + "/findings")
def findings_now(service: TheService, node_id: TheNode, fence: int, node_rank: int, current: Findings) -> Response:
    """Take the current findings on the node's task; findings missing from the list are over."""
    run_id = findings.findings_reported(service.store, node_id, fence, node_rank, current.findings, service.clock())
    if run_id is not None:
        service.run_changed(run_id)
    return answer({"fence": fence, "node_rank": node_rank})


@router.post(TASK + "/stacks")
def stacks_now(service: TheService, node_id: TheNode, fence: int, node_rank: int, rank_stacks: Stacks) -> Response:
    """Take the stacks of the task's ranks, after a request."""
    service.run_changed(ranks.stacks_reported(service.store, node_id, fence, node_rank, rank_stacks))
    return answer({"fence": fence, "node_rank": node_rank})


@router.post(TASK + "/profiles")
def profile_now(service: TheService, node_id: TheNode, fence: int, node_rank: int, outcome: RankProfile) -> Response:
    """Take the outcome of a requested profile in one of the task's ranks."""
    profiles.profile_reported(service.store, node_id, fence, node_rank, outcome)
    if run_id := service.run_of(fence):
        service.hub.desired_state_of_runs_changed([run_id])
        service.run_changed(run_id)
    return answer({"fence": fence, "node_rank": node_rank})


@router.post(TASK + "/collectives")
def collectives_now(
    service: TheService, node_id: TheNode, fence: int, node_rank: int, records: NodeCollectives
) -> Response:
    """Take the latest collectives of the task's ranks; answer where the ranks of all nodes disagree."""
    ranks.collectives_reported(service.store, node_id, fence, node_rank, records)
    if run_id := service.run_of(fence):
        service.run_changed(run_id)
    return answer(CollectivesAnswer(verdict=ranks.verdict_of_attempt(service.store, fence)))


def _desired_state(service: Service, node_id: str) -> tuple[str, str]:
    changes, store = service.idle_nodes.changes, service.lineage.identity
    assignments, watched = service.assignments(node_id)
    checks = service.preflights.requested_checks(node_id)
    content: dict[str, Any] = {"watched": watched, "checks": document(checks)}
    content["assignments"] = [_assignment(service, node_id, assignment) for assignment in assignments]
    content |= (pool := service.jobs.desired_state(node_id))
    with service.store.read() as session:
        content["tests"] = document(hardware_tests.requests(session, node_id, service.clock()))
        content["end_unknown"] = node_reports.labels_to_end(session, node_id)
        requested = resends(session, node_id)
    tokens = service.credentials
    if tasks := service.checkpoint_tasks.desired(node_id):
        content["checkpoint_tasks"] = tasks
    content["resends"] = [document(one) | {"token": tokens.attempt_token(one.fence, node_id)} for one in requested]
    is_idle, content["store"] = not (pool or any(content.values())), store
    version = hashlib.sha256(json_text(content).encode()).hexdigest()[:20]
    for assignment, planned in zip(content["assignments"], assignments, strict=True):
        assignment["secrets"] = planned.secrets  # not in the version, which is in addresses and so in logs
    state = version, json_text({"version": version, **content})
    if is_idle:
        service.idle_nodes.keep(node_id, store, state, changes)
    return state


def _assignment(service: Service, node_id: str, assignment: Assignment) -> dict[str, Any]:
    """Return it as JSON values with its token, its spec without defaults: a worker that lacks a new field can read what
    uses none."""
    spec = assignment.spec.model_dump(exclude_defaults=True)
    token = service.credentials.attempt_token(assignment.fence, node_id)
    return dict(document(assignment)) | {"spec": document(spec), "token": token}


def _report(service: Service, node_id: str, fence: int, node_rank: int, task_report: TaskReport) -> dict[str, str]:
    measure = service.settings.preflight_bandwidth
    state = task_reports.task_reported(
        service.store, node_id, fence, node_rank, task_report, service.clock(), measure=measure
    )
    service.task_changed(fence)
    return {"state": state.value}


# Logs, event files and pieces of streams from workers, and code snapshots for them.

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
    outcomes = await threads.run(_take, service, request.state.principal, node_id, body)
    answers = ",".join(_answer_to(request, outcome) for outcome in outcomes)
    return Response(f'{{"answers":[{answers}]}}', media_type="application/json")


@router.get("/snapshots/{sha256}")
async def send_snapshot(
    request: Request, service: TheService, threads: TheThreads, principal: ThePrincipal, node_id: TheNode, sha256: str
) -> Response:
    """The code of a run that the node is to start. Raises Rejection when no run of the node uses it."""
    assignments = await threads.run(desired_state.live_assignments, service.store, node_id, principal.attempt)
    used = {assignment.spec.snapshot for assignment in assignments}
    if sha256 not in used and sha256 not in await threads.run(
        service.checkpoint_tasks.snapshots, node_id, principal.attempt
    ):
        raise Rejection(403, f"No run of this node uses the snapshot {sha256[:12]}.")
    path, name = service.snapshots.path(sha256), f"{sha256[:12]}.tar"
    return DigestResponse.of_file(request, path, sha256, name, media_type="application/x-tar")


def _take(service: Service, principal: Principal, node_id: str, body: bytes) -> list[Outcome]:
    bundle = Bundle.of_body(body)
    for head in bundle.heads:
        require_own(principal, head.fence)
    read = [_piece(service, head, content) for head, content in zip(bundle.heads, bundle.contents, strict=True)]
    outcomes = iter(take(service, node_id, [piece for piece in read if isinstance(piece, ArrivedPiece)]))
    return [next(outcomes) if isinstance(piece, ArrivedPiece) else piece for piece in read]


def _piece(service: Service, head: PieceHead, content: bytes) -> ArrivedPiece | Exception:
    """The piece, or why it cannot be taken: another store's attempt, or a content that is no batch of points."""
    try:
        if not service.lineage.remembers(head.fence, head.label):
            service.lineage.check_attempt(head.fence, head.label or None)
        if head.path:
            stream = StreamKey(head.fence, head.node_rank, head.path, head.generation)
            return ArrivedPiece(stream, offset=head.offset, content=content)
        batch = PackedBatch.of_body(content)
        return ArrivedPiece(StreamKey(head.fence, head.node_rank, batch.path, batch.generation), batch)
    except (UnknownAttempt, HTTPException, ValidationError) as error:
        return error


def _answer_to(request: Request, outcome: Outcome) -> str:
    if isinstance(outcome, Exception):
        response = failure(request, outcome)
        return f'{{"status":{response.status_code},"body":{bytes(response.body).decode()}}}'
    return f'{{"status":{200 if outcome.is_stored else 416},"body":{{"offset":{outcome.offset}}}}}'
