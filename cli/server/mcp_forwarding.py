"""Forward an agent's JSON-RPC messages, a line each, to the dashboard's /mcp, and its answers back."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2

from cli.server.client import ServerClient
from cli.terminal import CommandFailed

PATH = "/mcp"
SILENT_S = 120.0
"""An answer that takes longer than this sends signs of life."""
LAST_ANSWERS_S = 5.0
"""How long answers to earlier requests may take once stdin has ended."""
VERSION = "io.modelcontextprotocol/protocolVersion"
"""Where a request of the newer revisions names its revision."""
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header Mcp-Name repeats."""
PARSE_ERROR, INVALID_REQUEST, SERVER_ERROR = -32700, -32600, -32000


async def forward(server: ServerClient) -> None:
    """Forward until stdin ends; requests are answered beside each other. Raises CommandFailed."""
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    threading.Thread(target=_read, args=(asyncio.get_running_loop(), lines), daemon=True).start()
    forwarding = _Forwarding(server)
    while (line := await lines.get()) is not None:
        forwarding.take(line)
    await forwarding.finish()


class _Forwarding:
    """The requests that are on their way."""

    def __init__(self, server: ServerClient) -> None:
        self._server = server
        self._open: dict[str, asyncio.Task[None]] = {}
        self._revision: str | None = None
        """The older revision that an `initialize` agreed on."""

    def take(self, line: bytes) -> None:
        """Begin to forward one message."""
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except ValueError:
            return _write_error(None, PARSE_ERROR, "This line is no JSON.")
        if not isinstance(message, dict) or not isinstance(message.get("params") or {}, dict):
            return _write_error(None, INVALID_REQUEST, "Each line must be one JSON-RPC message.")
        if message.get("method") == "notifications/cancelled":
            self._cancel((message.get("params") or {}).get("requestId"))
        key = json.dumps(message.get("id")) if "id" in message else f"notification {id(message)}"
        task = asyncio.ensure_future(self._forward(message))
        self._open[key] = task
        task.add_done_callback(lambda done: self._open.pop(key, None) if self._open.get(key) is done else None)
        return None

    async def finish(self) -> None:
        """Let what is on its way arrive, for a moment."""
        if self._open:
            _, late = await asyncio.wait(self._open.values(), timeout=LAST_ANSWERS_S)
            for task in late:
                task.cancel()

    def _cancel(self, request_id: object) -> None:
        """End a request by closing its connection: the server then ends the call."""
        if task := self._open.get(json.dumps(request_id)):
            task.cancel()

    async def _forward(self, message: dict[str, Any]) -> None:
        request_id, is_request = message.get("id"), "id" in message and "method" in message
        try:
            async for answer in self._answers(message):
                self._note(message, answer)
                _write(answer)
        except CommandFailed as error:
            if is_request:
                _write_error(request_id, SERVER_ERROR, str(error))

    async def _answers(self, message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield what the dashboard answers. Raises CommandFailed."""
        async with self._server.exchange(PATH, message, self._headers(message), SILENT_S) as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for event in httpx2.EventSource(response):
                    if event.data:
                        yield json.loads(event.data)
            elif content := await response.aread():
                yield json.loads(content)

    def _headers(self, message: Mapping[str, Any]) -> dict[str, str]:
        """The headers in which the protocol over HTTP repeats what a message says."""
        headers = {"Accept": "application/json, text/event-stream"}
        params = message.get("params") or {}
        meta = params.get("_meta")
        revision = meta.get(VERSION) if isinstance(meta, dict) else None
        if revision is None:
            return headers | ({"MCP-Protocol-Version": self._revision} if self._revision else {})
        headers |= {"MCP-Protocol-Version": str(revision), "Mcp-Method": _header(str(message.get("method", "")))}
        name = params.get(NAMED_BY.get(str(message.get("method")), ""))
        return headers | ({"Mcp-Name": _header(name)} if isinstance(name, str) else {})

    def _note(self, message: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        result = answer.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            self._revision = str(result.get("protocolVersion") or "") or None


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
    """Hand over stdin's lines, then None; a thread of its own, because reading cannot be interrupted."""
    for line in sys.stdin.buffer:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    loop.call_soon_threadsafe(lines.put_nowait, None)


def _header(value: str) -> str:
    """The value as a header may have it."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode(errors='replace')).decode()}?="


def _write_error(request_id: object, code: int, message: str) -> None:
    _write({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def _write(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()
