"""Work for a client that may leave before it is done: it then ends where it waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import CancelScope, create_task_group
from starlette.requests import ClientDisconnect
from starlette.types import Receive

T = TypeVar("T")


async def while_connected(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """The answer of `work`, which is cancelled when the client disconnects; a thread that it waits for ends first.

    Call it once the request's body is read. Raises ClientDisconnect, and what `work` raises."""
    outcome: T | Exception = ClientDisconnect()
    async with create_task_group() as group:
        group.start_soon(_cancel_at_end, receive, group.cancel_scope)
        try:
            outcome = await work()
        except Exception as error:  # a group would wrap it
            outcome = error
        group.cancel_scope.cancel()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def _cancel_at_end(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
