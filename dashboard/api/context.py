"""Dependencies of the routes: the service, the request's principal, and threads for work that may block."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Depends
from starlette.requests import HTTPConnection

from dashboard.errors import Rejection
from dashboard.security.guard.auth import Principal
from dashboard.service.service import Service
from db.nodes import node_reports

P = ParamSpec("P")
T = TypeVar("T")
WORKER_THREADS = 4
"""Workers have their own threads, so that no download or export can delay a heartbeat."""
CHECKPOINT_THREADS = 8
"""Checkpoints have their own threads: reading a large one takes seconds, and a bucket may answer slowly."""


class Threads:
    """A limited number of threads that serve one kind of request."""

    def __init__(self, number: int = WORKER_THREADS) -> None:
        self._number = number
        self._limiter: CapacityLimiter | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that may wait for the store or a disk in one of the threads."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._number)
        return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs), limiter=self._limiter)


async def service_of(connection: HTTPConnection) -> Service:
    """The service of the application that handles the request."""
    service: Service = connection.app.state.service
    return service


async def threads_of(connection: HTTPConnection) -> Threads:
    """The application's threads for requests of workers."""
    threads: Threads = connection.app.state.threads
    return threads


async def checkpoint_threads_of(connection: HTTPConnection) -> Threads:
    """The application's threads for checkpoints."""
    threads: Threads = connection.app.state.checkpoint_threads
    return threads


async def principal_of(connection: HTTPConnection) -> Principal:
    """The principal that the guard identified."""
    principal: Principal = connection.state.principal
    return principal


async def node_of(connection: HTTPConnection) -> str:
    """The node that the request's token belongs to; the guard admits only nodes to these routes."""
    node_id: str | None = connection.state.principal.node_id
    assert node_id is not None
    if connection.state.principal.attempt is not None:
        await _require_worth(connection, connection.state.principal.attempt, node_id)
    fence = str(connection.path_params.get("fence", ""))
    if re.fullmatch(r"[0-9]{1,18}", fence):  # a longer number was never issued; its route refuses it
        await _require_attempt(connection, int(fence))
    return node_id


def require_own(principal: Principal, fence: int) -> None:
    """Check that a token of one attempt is not used for another. Raises Rejection."""
    if principal.attempt not in (None, fence):
        raise Rejection(403, "An attempt's token is valid only for this attempt.")


async def _require_worth(connection: HTTPConnection, attempt: int, node_id: str) -> None:
    """Check that an attempt's token counts: the guard sees only that it is genuine. Raises Superseded, Rejection."""
    store, threads = (await service_of(connection)).store, await threads_of(connection)
    if (refusal := await threads.run(node_reports.task_token_refusal, store, attempt, node_id)) is not None:
        raise Rejection(410, refusal, "node")


async def _require_attempt(connection: HTTPConnection, fence: int) -> None:
    """Check that the store knows the attempt; one that a restored store lacks must not count as deleted."""
    lineage, label = (await service_of(connection)).lineage, connection.headers.get("rankzero-attempt")
    if not lineage.remembers(fence, label or ""):
        await (await threads_of(connection)).run(lineage.check_attempt, fence, label)


TheService = Annotated[Service, Depends(service_of)]
TheThreads = Annotated[Threads, Depends(threads_of)]
CheckpointThreads = Annotated[Threads, Depends(checkpoint_threads_of)]
TheNode = Annotated[str, Depends(node_of)]
ThePrincipal = Annotated[Principal, Depends(principal_of)]
