"""The dashboard's server without a port: this process's HTTP clients reach the ASGI application directly.

WebSockets and raw bytes reach it through uvicorn's own protocol, over a pair of connected sockets.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import httpx2
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE

from dashboard.app.server import SHUTDOWN_S, Server

log = logging.getLogger("uvicorn.error")
HOST = "127.0.0.1"
CLIENT = (HOST, 50_000)
DISCONNECT: Message = {"type": "http.disconnect"}


class PromptServer(Server):
    """The product's server, which notices at once that it should end; uvicorn looks every 0.1 s."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._is_to_end = asyncio.Event()
        self.is_ready = threading.Event()
        """Set once the server serves, or cannot."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `end`."""
        try:
            super().run(sockets)
        finally:
            self.is_ready.set()

    def end(self) -> None:
        """Make `run` return; call it from another thread, after the start."""
        self.loop.call_soon_threadsafe(self._is_to_end.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as the product does."""
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        """Serve until the end is asked for."""
        await self.on_tick(0)
        self.is_ready.set()
        await self._is_to_end.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down in uvicorn's order, without its pauses."""
        self.release()
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if tasks := set(self.server_state.tasks):
            _, late = await asyncio.wait(tasks, timeout=SHUTDOWN_S)
            for task in late:
                task.cancel()
        await self.lifespan.shutdown()


class PortlessServer(PromptServer):
    """A server without a listening socket; `port` is only a part of its address."""

    def __init__(self, port: int, *args: Any) -> None:
        super().__init__(*args)
        self._port = port

    @property
    def port(self) -> int:
        """The port that the address names."""
        return self._port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start without a listening socket."""
        self.config.loaded_app = self._with_addresses(cast(ASGIApp, self.config.loaded_app))
        await super().startup([])
        _servers[HOST, self._port] = self

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, and shut down."""
        del _servers[HOST, self._port]
        await super().shutdown(sockets)

    def connection(self) -> socket.socket:
        """Return the client's end of a new connection."""
        near, far = socket.socketpair()
        asyncio.run_coroutine_threadsafe(self._accept(far), self.loop).result()
        return near

    async def _accept(self, connected: socket.socket) -> None:
        protocol = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
        await self.loop.connect_accepted_socket(
            lambda: protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state),
            connected,
        )

    def _with_addresses(self, app: ASGIApp) -> ASGIApp:
        """Show the application the addresses that a connection over the loopback interface has."""

        async def addressed(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "lifespan":
                scope["client"], scope["server"] = CLIENT, (HOST, self._port)
            await app(scope, receive, send)

        return addressed


class Exchange(httpx2.SyncByteStream):
    """One request and its response: the client's thread on one side, the application's event loop on the other.

    Unlike a connection, it holds any number of unread bytes."""

    def __init__(self, server: PortlessServer, request: httpx2.Request) -> None:
        self._server, self._request = server, request
        self._received: asyncio.Queue[Message] = asyncio.Queue()
        self._sent: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._has_started = self._is_over = False
        self._missing_bytes: int | None = None

    def response(self) -> httpx2.Response:
        """Send the request, and return the response once its headers are there."""
        body = cast(httpx2.SyncByteStream, self._request.stream)
        if isinstance(body, httpx2.ByteStream):
            self._received.put_nowait(_piece(b"".join(body), False))
            self._in_loop(self._start)
        else:
            self._in_loop(self._start)
            self._send_pieces(body)
        start = self._next()
        headers = self._server.server_state.default_headers + list(start.get("headers", []))
        version = {"http_version": b"HTTP/1.1"}
        return httpx2.Response(start["status"], headers=headers, stream=self, extensions=version)

    def _send_pieces(self, body: httpx2.SyncByteStream) -> None:
        try:
            for piece in body:
                self._in_loop(self._received.put_nowait, _piece(piece, True))
        except BaseException:
            self.close()
            raise
        self._in_loop(self._received.put_nowait, _piece(b"", False))

    def __iter__(self) -> Iterator[bytes]:
        """Read the body."""
        more_body = True
        while more_body:
            message = self._next()
            more_body = message.get("more_body", False)
            if body := message.get("body"):
                yield bytes(body)

    def close(self) -> None:
        """Close the connection, whether or not the response is complete."""
        if not self._is_over:
            self._is_over = True
            self._in_loop(self._received.put_nowait, DISCONNECT)

    def _next(self) -> Message:
        """The application's next message. Raises httpx2.ReadTimeout, httpx2.RemoteProtocolError."""
        try:
            message = self._sent.get(timeout=self._request.extensions.get("timeout", {}).get("read"))
        except queue.Empty:
            self.close()
            raise httpx2.ReadTimeout("timed out") from None
        if message is None:
            raise httpx2.RemoteProtocolError("the application ended without completing its response")
        return message

    def _in_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._server.loop.call_soon_threadsafe(call, *arguments, context=contextvars.Context())
        except RuntimeError as error:  # the loop is closed
            raise httpx2.ConnectError(str(error)) from error

    def _start(self) -> None:
        tasks = self._server.server_state.tasks
        task = asyncio.create_task(self._run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _run(self) -> None:
        try:
            await self._server.config.loaded_app(self._scope(), self._receive, self._send)
        except BaseException as error:
            log.error("Exception in ASGI application\n", exc_info=error)
            if not self._has_started:
                self._sent.put({"type": "http.response.start", "status": 500})
                self._sent.put({"type": "http.response.body", "body": b"Internal Server Error"})
        finally:
            self._sent.put(None)

    def _scope(self) -> dict[str, Any]:
        raw_path, _, query = self._request.url.raw_path.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": self._request.url.scheme,
            "method": self._request.method,
            "path": unquote(raw_path.decode()),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower(), value.strip()) for name, value in self._request.headers.raw],
            "state": self._server.lifespan.state.copy(),
        }

    async def _receive(self) -> Message:
        message = await self._received.get()
        if message is DISCONNECT:
            self._received.put_nowait(DISCONNECT)
        return message

    async def _send(self, message: Message) -> None:
        """Take a message of the application, refusing what uvicorn refuses."""
        if self._is_over:
            return
        if message["type"] == "http.response.start":
            self._check_headers(message.get("headers", []))
        elif message["type"] == "http.response.body":
            message = self._checked_body(message)
        self._sent.put(message)

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        if any(HEADER_RE.search(name) or HEADER_VALUE_RE.search(value) for name, value in headers):
            raise RuntimeError("Invalid HTTP header name or value.")
        self._has_started = True
        length = dict(headers).get(b"content-length")
        self._missing_bytes = int(length) if length and self._request.method != "HEAD" else None

    def _checked_body(self, message: Message) -> Message:
        is_last = not message.get("more_body", False)
        if self._missing_bytes is not None:
            self._missing_bytes -= len(message.get("body", b""))
            if self._missing_bytes < 0 or (is_last and self._missing_bytes):
                raise RuntimeError("The response's content is not as long as its Content-Length.")
        if is_last:
            self._is_over = True
            self._received.put_nowait(DISCONNECT)
        return message | {"body": b""} if self._request.method == "HEAD" else message


def _piece(body: bytes, more_body: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more_body}


def connected(url: str, timeout_s: float | None = None) -> socket.socket:
    """Return the client's end of a new connection to the server at the address."""
    address = urlsplit(url)
    assert address.hostname is not None and address.port is not None
    server = _servers.get((address.hostname, address.port))
    if server is None:
        return socket.create_connection((address.hostname, address.port), timeout_s)
    connection = server.connection()
    connection.settimeout(timeout_s)
    return connection


_servers: dict[tuple[str, int | None], PortlessServer] = {}
_over_network = httpx2.HTTPTransport.handle_request


def _handle_request(transport: httpx2.HTTPTransport, request: httpx2.Request) -> httpx2.Response:
    """Answer in this process where a server without a port has the address."""
    server = _servers.get((request.url.host, request.url.port))
    return _over_network(transport, request) if server is None else Exchange(server, request).response()


os.register_at_fork(after_in_child=_servers.clear)
httpx2.HTTPTransport.handle_request = _handle_request  # type: ignore[method-assign]
