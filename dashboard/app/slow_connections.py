"""Deadlines for clients that send slowly or stop reading: uvicorn has none of its own."""

from __future__ import annotations

import asyncio
from typing import Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dashboard.app.large_bodies import LARGE_BODY, LargeBody


class ImpatientProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, ending connections whose request stalls.

    Responses may take as long as they like (long polls, downloads that are read); idle connections end as uvicorn
    has it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to check the connection regularly."""
        super().connection_made(transport)
        self._received = self._received_before = self._unread_before = self._slow_checks = 0
        self._phase_before: tuple[str, int] | None = None
        self._large_body: LargeBody | None = None
        self._timer = self.loop.call_later(CHECK_EVERY_S, self._check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the checks."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the received bytes."""
        self._note_received(len(data))
        super().data_received(data)

    def _note_received(self, size_bytes: int) -> None:
        self._received += size_bytes

    def on_headers_complete(self) -> None:
        """Offer the request's handler to receive a body of known length by itself."""
        super().on_headers_complete()
        length = dict(self.headers).get(b"content-length")
        if length and self.scope["method"] == "PUT" and not self.expect_100_continue:
            self._large_body = LargeBody(self, int(length), self._note_received)
            self.scope["extensions"] = {LARGE_BODY: {"body": self._large_body}}

    def _check_progress(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() not in (self, self._large_body):
            return  # closed, or upgraded to a WebSocket, which has its own pings
        phase = self._phase()
        is_slow = self._is_slow(phase)
        is_same = self._phase_before == (phase, id(self.cycle))
        self._slow_checks = (self._slow_checks if is_same else 0) + 1 if is_slow else 0
        self._phase_before, self._received_before = (phase, id(self.cycle)), self._received
        if self._slow_checks >= MAX_SLOW_CHECKS.get(phase, 1):
            self._end()
        else:
            self._timer = self.loop.call_later(CHECK_EVERY_S, self._check_progress)

    def _is_slow(self, phase: str) -> bool:
        """Whether nothing, or next to nothing, moved since the last check."""
        new_bytes = self._received - self._received_before
        unread, unread_before = self.transport.get_write_buffer_size(), self._unread_before
        self._unread_before = unread
        if phase == "answer":
            return 0 < unread == unread_before
        return phase == "headers" or (phase == "body" and new_bytes < MIN_BYTES)

    def _phase(self) -> Literal["headers", "body", "answer", "idle"]:
        if self.timeout_keep_alive_task is not None:
            return "idle"
        if self.cycle is None or self.cycle.response_complete:
            return "headers"
        # While the application does not read, the client cannot send.
        return "body" if self.cycle.more_body and not self.flow.read_paused else "answer"

    def _end(self) -> None:
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(TOO_SLOW)
        if self._unread_before:  # the client does not read, so nothing need be flushed
            self.transport.abort()
            return
        self.transport.close()
        # In case the client does not read either.
        self._timer = self.loop.call_later(CHECK_EVERY_S, self.transport.abort)


CHECK_EVERY_S = 10.0
MIN_BYTES = 1000
"""Least growth of a body between two checks: 100 bytes a second, which every working link has."""
MAX_SLOW_CHECKS = {"headers": 2, "body": 3, "answer": 30}
"""Checks in a row that may find incomplete headers, a body that does not grow, or a response of which the client reads
nothing: five minutes, after which a download can resume by Range."""
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 29\r\n"
    b"Connection: close\r\n\r\nThe request came too slowly.\n"
)
