"""This dashboard's own API, asked within the process for who calls a tool: by the same routes, with their rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.types import Message, Scope

from dashboard.security.guard.auth import Principal
from db import acting


class ToolRefused(Exception):
    """A call that is answered with a sentence instead of a result."""

    def __init__(self, message: str, status: int = 400, *, may_quote: bool = False) -> None:
        """`may_quote`: the sentence may contain what users wrote, such as the command of a watched run."""
        super().__init__(message)
        self.status, self.may_quote = status, may_quote


class OwnApi:
    """Asks the routes of the application that a request came to, in the name of its sender."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.principal: Principal = scope["state"]["principal"]

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """The JSON document that a route answers with; parameters that are None are omitted. Raises ToolRefused."""
        return await run_in_threadpool(json.loads, await self.bytes_of(method, path, body, **query))

    async def bytes_of(self, method: str, path: str, body: Any = None, **query: Any) -> bytes:
        """The body that a route answers with. Raises ToolRefused."""
        response = _Response(b"" if body is None else json.dumps(body).encode())
        parameters = [(name, value) for name, value in query.items() if value is not None]
        scope = self._scope_of(method, path, urlencode(parameters, doseq=True), len(response.request_body))
        with self.acting():
            await self._scope["app"].router(scope, response.receive, response.send)
        if response.status >= 400:
            raise ToolRefused(_sentence(response), response.status, may_quote=response.status == 409)
        return response.content

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Act as the sender in a block."""
        address = (self._scope.get("client") or (None,))[0]
        with acting.acting(self.principal.rights), acting.requested_from(address):
            yield

    def _scope_of(self, method: str, path: str, query: str, body_bytes: int) -> Scope:
        """The request to a route: everything that the guard found out about its sender, and another address."""
        own = [(name, value) for name, value in self._scope["headers"] if name in (b"host", b"authorization")]
        content = [(b"content-type", b"application/json"), (b"content-length", str(body_bytes).encode())]
        full = self._scope.get("root_path", "") + path
        changed = {
            "method": method, "path": full, "raw_path": full.encode(), "query_string": query.encode(),
            "headers": own + content, "path_params": {}, "extensions": {},
        }  # fmt: skip
        own_scope = {name: value for name, value in self._scope.items() if name not in ("endpoint", "route", "router")}
        return own_scope | changed


class _Response:
    """What a route reads and sends."""

    def __init__(self, request_body: bytes) -> None:
        self.request_body, self.status = request_body, 500
        self._parts: list[bytes] = []
        self._is_read = False

    @property
    def content(self) -> bytes:
        """The body."""
        return b"".join(self._parts)

    async def receive(self) -> Message:
        """Return the request's body, then wait: a client that leaves has the whole call cancelled."""
        if self._is_read:
            await anyio.sleep_forever()
        self._is_read = True
        return {"type": "http.request", "body": self.request_body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Keep a message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body":
            self._parts.append(message.get("body", b""))


def _sentence(response: _Response) -> str:
    try:
        return str(json.loads(response.content)["detail"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"The dashboard answered with status {response.status}."
