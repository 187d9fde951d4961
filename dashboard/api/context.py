"""What every route needs: the service, and a thread to do work in that may wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Depends
from starlette.requests import HTTPConnection

from dashboard.security.auth import Principal
from dashboard.service.service import Service

P = ParamSpec("P")
T = TypeVar("T")
WORKER_THREADS = 4
"""Workers have threads of their own, so that no download or export can hold up a heartbeat."""
CHECKPOINT_THREADS = 8
"""So have checkpoints: a large one is read for seconds, and a bucket may take long to answer."""


class Threads:
    """So many threads in which requests of one kind are served."""

    def __init__(self, number: int = WORKER_THREADS) -> None:
        self._number = number
        self._limiter: CapacityLimiter | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something that may wait for the store or a disk."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._number)
        return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs), limiter=self._limiter)


async def service_of(connection: HTTPConnection) -> Service:
    """The service of the application that answers."""
    service: Service = connection.app.state.service
    return service


async def threads_of(connection: HTTPConnection) -> Threads:
    """The threads of the application that answers."""
    threads: Threads = connection.app.state.threads
    return threads


async def checkpoint_threads_of(connection: HTTPConnection) -> Threads:
    """Those of the application that answers that are for checkpoints."""
    threads: Threads = connection.app.state.checkpoint_threads
    return threads


async def principal_of(connection: HTTPConnection) -> Principal:
    """Who asks, as the guard found out."""
    principal: Principal = connection.state.principal
    return principal


async def node_of(connection: HTTPConnection) -> str:
    """The node whose token was shown; the guard lets nobody else come this far."""
    node_id: str | None = connection.state.principal.node_id
    assert node_id is not None
    fence = str(connection.path_params.get("fence", ""))
    if re.fullmatch(r"[0-9]{1,18}", fence):  # what is longer was never given out, and is refused by its route
        await _require_known(connection, int(fence))
    return node_id


async def _require_known(connection: HTTPConnection, fence: int) -> None:
    """An attempt that a restored store does not know is neither another one nor deleted."""
    lineage, label = (await service_of(connection)).lineage, connection.headers.get("rankzero-attempt")
    if not lineage.remembers(fence, label or ""):
        await (await threads_of(connection)).run(lineage.check, fence, label)


TheService = Annotated[Service, Depends(service_of)]
TheThreads = Annotated[Threads, Depends(threads_of)]
CheckpointThreads = Annotated[Threads, Depends(checkpoint_threads_of)]
TheNode = Annotated[str, Depends(node_of)]
TheAsking = Annotated[Principal, Depends(principal_of)]
