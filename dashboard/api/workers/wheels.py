"""Wheels and resolved locks for nodes without a way to the index, from nodes that have one."""

from __future__ import annotations

import hashlib
import re

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheNode, ThePrincipal, TheService, TheThreads
from dashboard.api.reading import JsonRoute
from dashboard.api.request_body import write_body
from dashboard.errors import Rejection
from dashboard.json_responses import answer, document
from dashboard.security.guard.auth import Principal
from dashboard.service.service import Service
from dashboard.storage.downloads import DigestResponse
from domain.environments.wheels import WantedWheels, WheelAnswer, WheelFile

router = APIRouter(route_class=JsonRoute, prefix="/api/worker", tags=["workers"])
MOST_BYTES = 8 * 1024**3


@router.get("/wheels")
def wheels(service: TheService, node_id: TheNode) -> Response:
    """All wheels that the server hands on."""
    return answer({"wheels": document(service.wheels.files())})


@router.post("/wheels/wanted")
def want(service: TheService, principal: ThePrincipal, node_id: TheNode, body: WantedWheels) -> Response:
    """Ask other nodes for wheels; repeated by a node as long as it waits for them."""
    if principal.attempt is None:  # a training that has its token is no sign of life of the worker
        service.registry.record_contact(node_id)
    there = {wheel.sha256 for wheel in service.wheels.files()}
    missing = [wheel for wheel in body.wheels if wheel.sha256 not in there]
    online = [node.id for node in service.nodes() if node.state == "alive"]
    hopeless = service.wanted_wheels.want(node_id, missing, online, service.clock())
    stored = [wheel.sha256 for wheel in body.wheels if wheel.sha256 in there]
    return answer(WheelAnswer(there=stored, hopeless=hopeless))


@router.post("/wheels/{sha256}/failed")
def failed(service: TheService, node_id: TheNode, sha256: str) -> Response:
    """Note that this node cannot fetch a wheel that it was asked for."""
    service.wanted_wheels.failed(node_id, sha256)
    return answer({"sha256": sha256})


@router.get("/wheels/{sha256}/{name}")
def send(request: Request, service: TheService, node_id: TheNode, sha256: str, name: str) -> Response:
    """A wheel. Raises Rejection where there is none."""
    return DigestResponse.of_file(request, service.wheels.path(sha256, name), sha256, name)


@router.put("/wheels/{sha256}/{name}")
async def receive(
    request: Request, service: TheService, threads: TheThreads, node_id: TheNode, sha256: str, name: str
) -> Response:
    """Take a wheel that another node waits for. Raises Rejection where its content is not that of its name."""
    try:
        wheel = WheelFile(name=name, sha256=sha256)
    except ValidationError as error:
        raise Rejection(422, "A wheel is named by its SHA-256 and file name.") from error
    too_large = Rejection(413, "A wheel of that size is not taken.")
    with service.wheels.arriving() as path:
        if await write_body(request, threads, service.files, path, MOST_BYTES, too_large) != sha256:
            raise Rejection(422, "The SHA-256 of what arrived is not the one in the address; send it again.")
        await threads.run(service.wheels.keep, path, wheel)
    service.wanted_wheels.arrived(sha256)
    return answer({"sha256": sha256})


@router.get("/locks/{key}")
def lock(service: TheService, principal: ThePrincipal, node_id: TheNode, key: str) -> Response:
    """The lock that a node resolved first; null where none has."""
    return answer({"key": key, "text": service.wheels.lock(_place(service, principal, key))})


@router.put("/locks/{key}")
async def keep_lock(
    request: Request, service: TheService, threads: TheThreads, principal: ThePrincipal, node_id: TheNode, key: str
) -> Response:
    """Keep a resolved lock; the answer is the one that counts for all nodes. Raises Rejection."""
    text = (await request.body()).decode(errors="replace")
    place = await threads.run(_place, service, principal, key)
    return answer({"key": key, "text": await threads.run(service.wheels.keep_lock, place, text)})


def _place(service: Service, principal: Principal, key: str) -> str:
    """Where a lock is kept: that of an attempt's token, which its training can read, counts for its run only."""
    run_id = None if principal.attempt is None else service.run_of(principal.attempt)
    if run_id is None or not re.fullmatch(r"[0-9a-f]{16}", key):
        return key
    return hashlib.sha256(f"{run_id} {key}".encode()).hexdigest()[:16]
