"""A reverse proxy that takes no body over a limit, as nginx does unless told otherwise; and odd answers on request."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HTML = b"<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>"
Odd = Callable[[str, str], tuple[int, str, bytes] | None]
"""(method, path) -> status, content type and body to answer with instead of the server; None: ask the server."""


class LimitingProxy(ThreadingHTTPServer):
    """In front of one server; what it refused, it remembers."""

    daemon_threads = True

    def __init__(self, server_url: str, limit_bytes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = urlsplit(server_url).netloc
        self.limit_bytes = limit_bytes
        self.refused: list[tuple[str, int]] = []
        self.odd: Odd = lambda method, path: None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: LimitingProxy
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        size_bytes = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size_bytes)
        if size_bytes > self.server.limit_bytes:
            self.server.refused.append((self.path, size_bytes))
            self._answer(413, "text/html", HTML)
        elif (odd := self.server.odd(self.command, self.path)) is not None:
            self._answer(*odd)
        else:
            self._forward(body)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _pass

    def _forward(self, body: bytes) -> None:
        asked = http.client.HTTPConnection(self.server.behind, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        try:
            asked.request(self.command, self.path, body or None, headers)
            said = asked.getresponse()
            self._answer(said.status, said.getheader("Content-Type") or "", said.read(), dict(said.getheaders()))
        finally:
            asked.close()

    def _answer(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        kept = {"etag", "x-checksum-sha256", "retry-after", "content-range"}
        for name, value in (headers or {}).items():
            if name.lower() in kept:
                self.send_header(name, value)
        if kind:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 204 and self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def limiting_proxy(server_url: str, limit_bytes: int = 1024 * 1024) -> Iterator[LimitingProxy]:
    """A proxy that runs."""
    proxy = LimitingProxy(server_url, limit_bytes)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
