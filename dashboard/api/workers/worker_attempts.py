"""What workers ask and report; every route checks that the part belongs to the node that speaks."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheAsking, TheNode, TheService, TheThreads, Threads, node_of
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer, document, json_text
from dashboard.live.messages import series_message
from dashboard.service.service import Service
from db.models import Series
from db.reports import findings, nodes, progress, ranks
from db.reports.nodes import Claim
from db.reports.progress import Arrival
from domain import protocol
from domain.messages import (
    CheckAnswer,
    Findings,
    JobReport,
    NodeFacts,
    NodeLoad,
    PointBatch,
    Stacks,
    TaskReport,
)

router = APIRouter(route_class=JsonRoute, prefix="/api/worker", tags=["workers"])
PART = "/attempts/{fence}/parts/{node_rank}"
LONGEST_WAIT_S = 60.0


def _body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Of a route that reads its body itself, for the API's page."""
    return {"requestBody": {"content": {"application/json": {"schema": model.model_json_schema()}}}}


class Registering(NodeFacts):
    """A node's facts, and the identity it had before."""

    protocol: int = protocol.FIRST
    """Workers of the first one name none."""
    node_id: str | None = None
    again: bool = False
    """This very process was that node before."""


@router.post("/register")
async def register(
    service: TheService,
    threads: TheThreads,
    asking: TheAsking,
    facts: Registering,
    rankzero_store: Annotated[str | None, Header()] = None,
) -> Response:
    """Take a worker in; its token from now on is in the answer."""
    await threads.run(service.jobs.check_pool, facts.pool, asking.job, asking.node_id)
    told = NodeFacts.model_validate(facts.model_dump(exclude={"node_id", "again"}))
    await threads.run(service.lineage.hears, rankzero_store)
    told.held = await threads.run(service.lineage.unknown, told.held)
    claim = Claim(asking.node_id or facts.node_id, asking.node_id is not None, facts.again)
    registration = await threads.run(service.register, told, claim, asking.join_token)
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
            "adopt": service.files.adoption() if service.places.takes_adopted else None,
        }
    )


@router.get("/wishes")
async def wishes(
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
    is_ours = await threads.run(service.lineage.hears, rankzero_store)
    if is_ours:  # else it registers first, and says what it holds, before it counts as alive
        service.registry.seen(node_id)
    with service.hub.waiting(node_id) as changed:
        while True:
            changed.clear()
            current, text = await threads.run(_wishes, service, node_id)
            left_s = ends_at - loop.time()
            if current != version or left_s <= 0 or service.hub.closing:
                return Response(text, media_type="application/json")
            try:
                await asyncio.wait_for(changed.wait(), left_s)
            except TimeoutError:
                if is_ours:
                    service.registry.seen(node_id)


@router.post("/load", status_code=204, openapi_extra=_body_of(NodeLoad))
async def load(request: Request) -> Response:
    """A sample of the node's load; also its sign of life."""
    # From each node every few seconds: nothing here but what must be.
    service: Service = request.app.state.service
    sample, node_id = NodeLoad.model_validate_json(await request.body()), await node_of(request)
    header, lineage = request.headers.get("rankzero-store"), service.lineage
    if not lineage.is_familiar(header, sample.held):
        sample.held = await request.app.state.threads.run(lineage.unknown, sample.held)
        if not await request.app.state.threads.run(lineage.hears, header):
            return Response(status_code=204)
    else:
        sample.held = []
    service.registry.seen(node_id, sample)
    return Response(status_code=204)


@router.get("/time")
async def time_now(node_id: TheNode) -> Response:
    """The clock that the node's own is compared with: the machine's, not one that never jumps."""
    return answer({"now": time.time()})


@router.post("/jobs/{fence}", status_code=204)
def job(service: TheService, node_id: TheNode, fence: int, said: JobReport) -> Response:
    """What a gateway hears from Slurm of an attempt's job; may be repeated."""
    service.registry.seen(node_id)
    service.jobs.reported(node_id, fence, said)
    return Response(status_code=204)


@router.post("/checks/{check_id}", status_code=204)
def answer_check(service: TheService, node_id: TheNode, check_id: int, said: CheckAnswer) -> Response:
    """What a node found out for one stage of a preflight; late and repeated answers change nothing."""
    service.check_answered(node_id, check_id, said)
    return Response(status_code=204)


@router.post(PART + "/report")
async def report(
    service: TheService, threads: TheThreads, node_id: TheNode, fence: int, node_rank: int, said: TaskReport
) -> Response:
    """What the node says of its part; may be repeated."""
    return answer(await threads.run(_report, service, node_id, fence, node_rank, said))


@router.post(PART + "/findings", status_code=204)
def findings_now(
    service: TheService, node_id: TheNode, fence: int, node_rank: int, said: Findings
) -> Response:
    """All that is wrong with the node's part now; what is missing from the list is no longer so."""
    run_id = findings.findings_reported(
        service.store, node_id, fence, node_rank, said.findings, service.clock()
    )
    if run_id is not None:
        service.run_changed(run_id)
    return Response(status_code=204)


@router.post(PART + "/stacks", status_code=204)
def stacks_now(service: TheService, node_id: TheNode, fence: int, node_rank: int, said: Stacks) -> Response:
    """Where the part's ranks stand, for somebody who asked."""
    ranks.stacks_reported(service.store, node_id, fence, node_rank, said)
    return Response(status_code=204)


@router.post(PART + "/points", openapi_extra=_body_of(PointBatch))
async def points(request: Request, fence: int, node_rank: int) -> Response:
    """Points and the byte range they were read from, stored together or not at all."""
    # The busiest route: the body is read by pydantic alone, once, and no dependency is resolved.
    service: Service = request.app.state.service
    threads: Threads = request.app.state.threads
    node_id, body = await node_of(request), await request.body()
    arrival = await threads.run(_points, service, node_id, fence, node_rank, body)
    if arrival.stored:
        return Response(f'{{"offset":{arrival.offset}}}', media_type="application/json")
    return answer({"offset": arrival.offset}, 416)


def _wishes(service: Service, node_id: str) -> tuple[str, str]:
    assignments, watched = service.assignments(node_id)
    checks = service.check_wishes(node_id)
    content = {"watched": watched, "assignments": document(assignments), "checks": document(checks)}
    content |= service.jobs.wishes(node_id) | {"store": service.lineage.identity}
    with service.store.read() as session:
        content["end_unknown"] = nodes.ends_wished(session, node_id)
    version = hashlib.sha256(json_text(content).encode()).hexdigest()[:20]
    return version, json_text({"version": version, **content})


def _report(service: Service, node_id: str, fence: int, node_rank: int, said: TaskReport) -> dict[str, str]:
    measure = service.settings.preflight_bandwidth
    state = progress.part_reported(
        service.store, node_id, fence, node_rank, said, service.clock(), measure=measure
    )
    service.part_changed(fence)
    return {"state": state.value}


def _points(service: Service, node_id: str, fence: int, node_rank: int, body: bytes) -> Arrival:
    batch = PointBatch.model_validate_json(body)
    arrival = progress.points_arrived(service.store, node_id, fence, node_rank, batch)
    service.registry.seen(node_id)
    if arrival.stored and service.peers is not None:
        service.peers.points_arrived(arrival.run_id)
    elif arrival.stored and service.hub.watched(arrival.run_id):
        rows = {tag: Series(tag=tag, source=batch.source, node_rank=node_rank) for tag in arrival.series}
        changes = [(rows[tag], points) for tag, points in arrival.series.items()]
        service.hub.publish(arrival.run_id, series_message(arrival.attempt, changes))
    return arrival
