"""The open WebSockets and waiting requests of each session or token, which end as soon as that has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

ENDED = 1008
"""The WebSocket close code: a policy was violated."""


class OpenSockets:
    """The WebSockets that are open now, by the name of what opened them; `close` may be called from any thread."""

    def __init__(self, reason: str = "signed out") -> None:
        self._reason = reason
        self._open: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._lock = threading.Lock()

    def close(self, name: str) -> None:
        """Close all WebSockets of this name, and end its waiting requests."""
        with self._lock:
            ending = list(self._open.get(name, ()))
        for loop, ended in ending:
            with suppress(RuntimeError):  # the loop is closed, and its WebSockets with it
                loop.call_soon_threadsafe(ended.set)

    async def keep_open(self, name: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket until `close` is called for its name; the application then sees a disconnect."""
        with self.ending(name) as ended:
            connection = _Connection(ended, self._reason, receive, send)
            await app(scope, connection.receive, connection.send)

    @contextmanager
    def ending(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set when `close` is called for the name. Inside the event loop only."""
        ended = asyncio.Event()
        entry = asyncio.get_running_loop(), ended
        with self._lock:
            self._open.setdefault(name, set()).add(entry)
        try:
            yield ended
        finally:
            with self._lock:
                self._open[name].discard(entry)
                if not self._open[name]:
                    del self._open[name]

    def names(self) -> list[str]:
        """The names with open WebSockets or waiting requests."""
        with self._lock:
            return list(self._open)


class _Connection:
    """A WebSocket that appears closed by its client as soon as what opened it has ended."""

    def __init__(self, ended: asyncio.Event, reason: str, receive: Receive, send: Send) -> None:
        self._ended, self._reason, self._receive, self._send = ended, reason, receive, send
        self._is_closed = False

    async def receive(self) -> Message:
        """The client's next message, or a disconnect after the end."""
        reading = asyncio.ensure_future(self._receive())
        waiting = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
        finally:
            for task in (reading, waiting):
                task.cancel()
        self._is_closed = True
        with suppress(RuntimeError):  # the client was faster
            await self._send({"type": "websocket.close", "code": ENDED, "reason": self._reason})
        return {"type": "websocket.disconnect", "code": ENDED}

    async def send(self, message: Message) -> None:
        """Send the message unless what opened the WebSocket has ended."""
        if not self._is_closed:
            await self._send(message)
