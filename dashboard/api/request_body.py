"""The body of a large request, read into memory of the reader's own, or written to a file as it arrives."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Protocol

from starlette.requests import Request

from dashboard.api.context import Threads
from dashboard.errors import Rejection
from dashboard.storage.files import Files

PIECE_BYTES = 1024 * 1024
SPACE_CHECKED_EVERY_BYTES = 64 * PIECE_BYTES


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


async def write_body(
    request: Request,
    threads: Threads,
    files: Files,
    path: Path,
    limit_bytes: float = math.inf,
    too_large: Rejection | None = None,
) -> str:
    """Write the body to a new file as it arrives, while the disk has space for it; returns its SHA-256.

    Raises `too_large` beyond the limit, and Rejection where the disk is full."""
    hashing, buffer, size_bytes = hashlib.sha256(), bytearray(), 0
    check_at = SPACE_CHECKED_EVERY_BYTES

    def flush() -> None:
        with path.open("ab") as file:
            file.write(buffer)
        hashing.update(buffer)
        buffer.clear()

    files.require_free_space(int(request.headers.get("content-length", 0)))
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise too_large or Rejection(413, "The body is too large.")
        buffer += chunk
        if len(buffer) >= PIECE_BYTES:
            await threads.run(flush)
        if size_bytes >= check_at:
            files.require_free_space(0)
            check_at += SPACE_CHECKED_EVERY_BYTES
    await threads.run(flush)
    return hashing.hexdigest()
