"""Signed-out browser sessions: their cookies are rejected, their WebSockets are closed."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.private_files import write_private
from dashboard.security.token_files import COOKIE_LIFETIME_S

SIGNED_OUT = 1008
"""The WebSocket close code: a policy was violated."""


class Sessions:
    """The signed-out sessions, stored in a file so that a restart does not revive them."""

    def __init__(self, path: Path, now: float) -> None:
        self._path = path
        self._ended = {name: until for name, until in _read(path) if until > now}
        self._open: dict[str, set[asyncio.Event]] = {}

    def is_ended(self, cookie: str) -> bool:
        """Whether this session was signed out."""
        return bool(self._ended) and _name(cookie) in self._ended

    def end(self, cookie: str, now: float) -> None:
        """Sign the session out for good, and close all its WebSockets. Inside the event loop only."""
        name = _name(cookie)
        self._ended = {session: until for session, until in self._ended.items() if until > now}
        self._ended[name] = now + COOKIE_LIFETIME_S
        with suppress(OSError):  # a full disk must not keep anybody signed in
            lines = (f"{session} {until:.0f}\n" for session, until in self._ended.items())
            write_private(self._path, "".join(lines))
        for event in self._open.get(name, ()):
            event.set()

    async def keep_open(self, cookie: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket until the session ends; the application then sees a disconnect."""
        ended = asyncio.Event()
        name = _name(cookie)
        self._open.setdefault(name, set()).add(ended)
        try:
            connection = _Connection(ended, receive, send)
            await app(scope, connection.receive, connection.send)
        finally:
            self._open[name].discard(ended)
            if not self._open[name]:
                del self._open[name]


class _Connection:
    """A WebSocket that appears closed by the browser as soon as its session has ended."""

    def __init__(self, ended: asyncio.Event, receive: Receive, send: Send) -> None:
        self._ended, self._receive, self._send = ended, receive, send
        self._is_closed = False

    async def receive(self) -> Message:
        """The browser's next message, or a disconnect after the session's end."""
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
        with suppress(RuntimeError):  # the browser was faster
            await self._send({"type": "websocket.close", "code": SIGNED_OUT, "reason": "signed out"})
        return {"type": "websocket.disconnect", "code": SIGNED_OUT}

    async def send(self, message: Message) -> None:
        """Send the message unless the session has ended."""
        if not self._is_closed:
            await self._send(message)


def _name(cookie: str) -> str:
    """The session's name in the file: a hash, so that nobody can sign in with it."""
    return hashlib.sha256(b"ended session " + cookie.encode(errors="replace")).hexdigest()


def _read(path: Path) -> list[tuple[str, float]]:
    try:
        lines = [line.split() for line in path.read_text(errors="replace").splitlines()]
    except FileNotFoundError:
        return []
    return [(line[0], float(line[1])) for line in lines if len(line) == 2 and line[1].isdecimal()]
