"""Bodies of large requests, received into their reader's memory: uvicorn would copy them five times on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGE_BODY = "rankzero.large_body"
"""The extension of a request's scope that has the `LargeBody` as its "body"."""
SKIPPED_BYTES = 256 * 1024


class LargeBody(asyncio.BufferedProtocol):
    """The body of one request of a known length: from the first read on the connection is its own, not the parser's.

    What nobody reads is skipped; after the last byte the connection is the protocol's again."""

    def __init__(self, protocol: HttpToolsProtocol, size_bytes: int, note_received: Callable[[int], None]) -> None:
        """`note_received` is called with the number of bytes whenever some arrive."""
        self._protocol, self._cycle, self._size_bytes = protocol, protocol.cycle, size_bytes
        self._note_received = note_received
        self._parsed: memoryview | None = None
        """Bytes that arrived before the first read and are not read yet."""
        self._left_bytes = 0
        self._room = memoryview(b"")
        """Where the reader waits for bytes."""
        self._filled: asyncio.Future[None] | None = None

    async def read_into(self, room: memoryview) -> int:
        """Wait until the room is full or the body at its end; returns the number of bytes, 0 at the end.

        Raises ClientDisconnect."""
        if self._parsed is None:
            self._parsed = self._take_over()
        if count := min(len(self._parsed), len(room)):
            room[:count], self._parsed = self._parsed[:count], self._parsed[count:]
            return count
        if self._cycle.disconnected:
            raise ClientDisconnect
        return await self._receive(room[: self._left_bytes]) if self._left_bytes else 0

    def _take_over(self) -> memoryview:
        parsed, self._cycle.body = bytes(self._cycle.body), bytearray()
        if self._cycle.more_body and not self._cycle.disconnected:
            self._left_bytes = self._size_bytes - len(parsed)
            self._protocol.flow.pause_reading()
            self._protocol.transport.set_protocol(self)
        return memoryview(parsed)

    async def _receive(self, room: memoryview) -> int:
        self._room, self._filled = room, self._protocol.loop.create_future()
        self._protocol.flow.resume_reading()
        try:
            await self._filled
            return len(room) - len(self._room)
        finally:  # the memory is the reader's again, also when it stops waiting
            self._room, self._filled = memoryview(b""), None
            if self._left_bytes:
                self._protocol.flow.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:
        """Return where the next bytes belong."""
        return self._room or bytearray(min(SKIPPED_BYTES, self._left_bytes))

    def buffer_updated(self, nbytes: int) -> None:
        """Note that so many bytes arrived."""
        self._note_received(nbytes)
        self._left_bytes -= nbytes
        self._room = self._room[nbytes:]
        if not self._left_bytes or not self._room:
            self._protocol.flow.pause_reading()
            self._wake()
        if not self._left_bytes:
            self._protocol.loop.call_soon(self._hand_back)
        elif self._cycle.response_complete:
            self._protocol.flow.resume_reading()

    def _wake(self) -> None:
        if self._filled is not None and not self._filled.done():
            self._filled.set_result(None)

    def _hand_back(self) -> None:
        """Give the connection to a new parser, for the old one waits for this body."""
        if self._cycle.disconnected:
            return
        self._protocol.parser = type(self._protocol.parser)(self._protocol)
        self._protocol.transport.set_protocol(self._protocol)
        self._protocol.on_message_complete()
        self._protocol.flow.resume_reading()

    # -- what is the protocol's own affair -------------------------------------------------------

    def eof_received(self) -> None:
        """Pass it on."""
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on; the reader gets what has arrived."""
        self._protocol.connection_lost(exc)
        self._wake()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._protocol.resume_writing()
