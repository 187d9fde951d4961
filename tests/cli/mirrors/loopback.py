"""Requests of the loopback servers that stand for a team's logger."""

from __future__ import annotations

from contextlib import suppress
from http.server import BaseHTTPRequestHandler


class QuietHandler(BaseHTTPRequestHandler):
    """Answers without a log; whoever asked may have gone."""

    def reply(self, status: int, content: bytes) -> None:
        """Send a JSON document."""
        with suppress(BrokenPipeError, ConnectionResetError):  # whoever asked did not wait
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
