"""Deadlines for whoever sends slowly or stops reading: uvicorn has none of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    Protocol = AutoHTTPProtocol

LOOK_S = 10.0
LEAST_BYTES = 1000
"""Of a body, between two looks: 100 bytes a second, which every link has that is up."""
MOST_LOOKS = {"headers": 2, "body": 3, "answer": 30}
"""So many looks in a row may see a request's head not there yet, a body that does not grow, an answer of which nobody
reads a byte: five minutes, then a download that was put aside goes on by Range."""
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 29\r\n"
    b"Connection: close\r\n\r\nThe request came too slowly.\n"
)


class ImpatientProtocol(Protocol):
    """HTTP as uvicorn speaks it; requests that do not come on are ended.

    Answers may take as long as they like (long polls, downloads that go on), an idle connection ends as uvicorn has
    it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look, every few seconds."""
        super().connection_made(transport)
        self._received = self._received_before = self._unread_before = self._slow_looks = 0
        self._phase_before: tuple[str, int] | None = None
        self._looking = self.loop.call_later(LOOK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        self._looking.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes."""
        self._received += len(data)
        super().data_received(data)

    def _look(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # closed, or a WebSocket now, with pings of its own
        phase = self._phase()
        is_slow = self._is_slow(phase)
        is_same = self._phase_before == (phase, id(self.cycle))
        self._slow_looks = (self._slow_looks if is_same else 0) + 1 if is_slow else 0
        self._phase_before, self._received_before = (phase, id(self.cycle)), self._received
        if self._slow_looks >= MOST_LOOKS.get(phase, 1):
            self._end()
        else:
            self._looking = self.loop.call_later(LOOK_S, self._look)

    def _is_slow(self, phase: str) -> bool:
        """Whether nothing, or next to nothing, moved since the look before."""
        came = self._received - self._received_before
        unread, unread_before = self.transport.get_write_buffer_size(), self._unread_before
        self._unread_before = unread
        if phase == "answer":
            return 0 < unread == unread_before
        return phase == "headers" or (phase == "body" and came < LEAST_BYTES)

    def _phase(self) -> Literal["headers", "body", "answer", "idle"]:
        if self.timeout_keep_alive_task is not None:
            return "idle"
        if self.cycle is None or self.cycle.response_complete:
            return "headers"
        # While nobody reads what has come, no more can come.
        return "body" if self.cycle.more_body and not self.flow.read_paused else "answer"

    def _end(self) -> None:
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(TOO_SLOW)
        if self._unread_before:  # it does not read; what waits for it is of no use
            self.transport.abort()
            return
        self.transport.close()
        self._looking = self.loop.call_later(LOOK_S, self.transport.abort)  # nor does it read
