"""Security headers of responses, and size limits of request bodies."""

from __future__ import annotations

import logging
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.errors import Rejection
from dashboard.ip_addresses import parse_address
from dashboard.security.guard.auth import MCP
from dashboard.security.plain_pages import PLAIN_POLICY
from dashboard.security.proxies import is_https
from domain.text.formats import KIB, MIB


class SecurityHeaders:
    """Adds the security headers to every response that does not set its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wrap `send` so that the response's first message carries the headers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_data = scope["path"].startswith(("/api/", MCP)) and scope["path"] != "/api/docs"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                policy = DATA_POLICY if is_data else _policy(scope["path"], message["status"])
                headers.setdefault("Content-Security-Policy", policy)
                if is_https(scope) and _is_site(Headers(scope=scope).get("host", "")):
                    headers.setdefault("Strict-Transport-Security", HTTPS_ONLY)
                if is_data:
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, send_with_headers)


log = logging.getLogger("rankzero")
PAGE_POLICY = "; ".join(
    (
        "default-src 'self'",
        # Streamlit loads component code from blob: URLs, and needs WebAssembly.
        "script-src 'self' 'wasm-unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "frame-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

HTTPS_ONLY = "max-age=2592000"
"""Browsers use https for this host during 30 days after each visit."""


def _is_site(host: str) -> bool:
    """Whether the host is a name at the usual port: browsers would apply the header to all of its ports."""
    return bool(host) and ":" not in host and host != "localhost" and parse_address(host) is None


def _policy(path: str, status: int) -> str:
    return PLAIN_POLICY if path.startswith(("/login", "/invite/")) or status == 401 else PAGE_POLICY


class Departures:
    """Ends a request quietly when its client has disconnected: that is not an error of the server."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            if not _is_disconnect(error):
                raise
            log.debug("%s %s: the client disconnected", scope.get("method"), scope["path"])


def _is_disconnect(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ClientDisconnect):
        error = error.__cause__ or error.__context__
    return error is not None


class BodyLimits:
    """Ends a request whose body exceeds its route's limit, while it arrives."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting the bytes of its body."""
        limit = _limit(scope["path"], scope["method"]) if scope["type"] == "http" else None
        if limit is None:
            await self.app(scope, receive, send)
            return
        received = 0

        async def _receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise Rejection(413, f"The body must be at most {limit} bytes here.")
            return message

        await self.app(scope, _receive_counted, send)


def _limit(path: str, method: str) -> int | None:
    if path.startswith("/api/worker/"):
        if method == "PUT" and path.startswith(("/api/worker/checkpoints/", "/api/worker/wheels/")):
            return None  # the routes themselves enforce the offered size, or that of a wheel
        if re.fullmatch(r"/api/worker/attempts/\d+/tasks/\d+/locks/\w+", path):
            return 16 * MIB
        return 4 * MIB + 64 * KIB if path == "/api/worker/pieces" else 2 * MIB
    if path == "/api/archives":
        return None  # the route itself requires free space for it
    if path == "/api/uploads" or (method == "PUT" and path.startswith("/api/snapshots/")):
        return None  # the routes themselves enforce the size limit of snapshots
    if path.startswith(("/_stcore/upload_file", "/tensorboard/")):
        return 2 * MIB
    is_large = path in ("/api/runs", "/api/preview", "/api/imports") or path.startswith("/api/imports/")
    return 4 * MIB if is_large else 64 * KIB
