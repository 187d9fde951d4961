"""Wheels and resolved locks for nodes without a way to the index, from nodes that have one.

A lock and what is asked for belong to the run of a task that has not ended, whichever token names it; a wheel, whose
content is that of its name, comes from the node that was asked for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheNode, TheService, TheThreads
from dashboard.api.reading import JsonRoute
from dashboard.api.request_body import write_body
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.storage.downloads import DigestResponse
from db.tasks import desired_state
from domain.environments.wheels import WantedWheels, WheelAnswer, WheelFile

router = APIRouter(route_class=JsonRoute, prefix="/api/worker", tags=["workers"])
TASK = "/attempts/{fence}/tasks/{node_rank}"
MOST_BYTES = 8 * 1024**3


async def _live_run(service: TheService, threads: TheThreads, node_id: TheNode, fence: int, node_rank: int) -> str:
    """The run of the node's task, which has not ended. Raises NotOwner, Superseded."""
    return await threads.run(desired_state.live_run, service.store, node_id, fence, node_rank)


LiveRun = Annotated[str, Depends(_live_run)]


@router.post(TASK + "/wheels/wanted")
def want(service: TheService, node_id: TheNode, run_id: LiveRun, body: WantedWheels) -> Response:
    """Ask other nodes for wheels that a lock of the run names; repeated by a node as long as it waits for them."""
    there = {wheel.sha256 for wheel in service.wheels.files()}
    missing = [wheel for wheel in body.wheels if wheel.sha256 not in there]
    named = service.wheels.named(run_id, missing)
    online = [node.id for node in service.nodes() if node.state == "alive"]
    hopeless = service.wanted_wheels.want(node_id, named, online, service.clock())
    hopeless += [wheel.sha256 for wheel in missing if wheel not in named]
    stored = [wheel.sha256 for wheel in body.wheels if wheel.sha256 in there]
    return answer(WheelAnswer(there=stored, hopeless=hopeless))


@router.get(TASK + "/wheels/{sha256}/{name}")
def send(request: Request, service: TheService, run_id: LiveRun, sha256: str, name: str) -> Response:
    """A wheel. Raises Rejection where there is none."""
    return DigestResponse.of_file(request, service.wheels.path(sha256, name), sha256, name)


@router.post("/wheels/{sha256}/failed")
def failed(service: TheService, node_id: TheNode, sha256: str) -> Response:
    """Note that this node cannot fetch a wheel that it was asked for."""
    service.wanted_wheels.failed(node_id, sha256)
    return answer({"sha256": sha256})


@router.put("/wheels/{sha256}/{name}")
async def receive(
    request: Request, service: TheService, threads: TheThreads, node_id: TheNode, sha256: str, name: str
) -> Response:
    """Take a wheel from the node that was asked for it. Raises Rejection where its content is not that of its name."""
    try:
        wheel = WheelFile(name=name, sha256=sha256)
    except ValidationError as error:
        raise Rejection(422, "A wheel is named by its SHA-256 and file name.") from error
    if not service.wanted_wheels.is_offered(node_id, wheel):
        raise Rejection(403, f"This node was not asked for the wheel {name[:100]!r}.")
    too_large = Rejection(413, "A wheel of that size is not taken.")
    with service.wheels.arriving() as path:
        if await write_body(request, threads, service.files, path, MOST_BYTES, too_large) != sha256:
            raise Rejection(422, "The SHA-256 of what arrived is not the one in the address; send it again.")
        await threads.run(service.wheels.keep, path, wheel)
    service.wanted_wheels.arrived(sha256)
    return answer({"sha256": sha256})


@router.get(TASK + "/locks/{key}")
def lock(service: TheService, run_id: LiveRun, key: str) -> Response:
    """The lock that a node of the run resolved first; null where none has."""
    return answer({"key": key, "text": service.wheels.lock(run_id, key)})


@router.put(TASK + "/locks/{key}")
async def keep_lock(request: Request, service: TheService, threads: TheThreads, run_id: LiveRun, key: str) -> Response:
    """Keep a resolved lock; the answer is the one that counts for all nodes of the run. Raises Rejection."""
    text = (await request.body()).decode(errors="replace")
    return answer({"key": key, "text": await threads.run(service.wheels.keep_lock, run_id, key, text)})
