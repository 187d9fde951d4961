"""The body of a large request, read into memory of the reader's own."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request


class RequestBody(Protocol):
    """The bytes of a request that have not been read."""

    async def read_into(self, room: memoryview) -> int:
        """Read what comes next; returns the number of bytes, 0 at the end. Raises ClientDisconnect."""


class StreamedBody:
    """A body in the chunks in which the server hands it over."""

    def __init__(self, request: Request) -> None:
        self._chunks = request.stream()
        self._chunk = memoryview(b"")

    async def read_into(self, room: memoryview) -> int:
        """See `RequestBody`."""
        while not self._chunk:
            try:
                self._chunk = memoryview(await anext(self._chunks))
            except StopAsyncIteration:
                return 0
        count = min(len(room), len(self._chunk))
        room[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count


def body_of(request: Request) -> RequestBody:
    """Return the request's body: straight from the connection (dashboard/app/large_bodies.py) where it can be."""
    large: dict[str, RequestBody] = request.scope.get("extensions", {}).get("rankzero.large_body", {})
    return large.get("body") or StreamedBody(request)
