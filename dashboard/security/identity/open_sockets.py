"""The open WebSockets of each session or token: as soon as that has ended, they appear closed by their client."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

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
        """Close all WebSockets of this name."""
        with self._lock:
            ending = list(self._open.get(name, ()))
        for loop, ended in ending:
            with suppress(RuntimeError):  # the loop is closed, and its WebSockets with it
                loop.call_soon_threadsafe(ended.set)

    async def keep_open(self, name: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket until `close` is called for its name; the application then sees a disconnect."""
        ended = asyncio.Event()
        entry = asyncio.get_running_loop(), ended
        with self._lock:
            self._open.setdefault(name, set()).add(entry)
        try:
            connection = _Connection(ended, self._reason, receive, send)
            await app(scope, connection.receive, connection.send)
        finally:
            with self._lock:
                self._open[name].discard(entry)
                if not self._open[name]:
                    del self._open[name]

    def names(self) -> list[str]:
        """The names with open WebSockets."""
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
