"""git's own server behind TLS on this machine, and what it was asked."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Git(BaseHTTPRequestHandler):
    """Hands every request to `git http-backend`, as a web server does."""

    protocol_version = "HTTP/1.1"  # with lengths: git does not like a TLS connection that just ends
    root = Path()
    redirect_to = ""
    needs_password = False
    asked: list[str]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.asked.append(self.headers.get("Authorization", ""))
        if self.needs_password or self.redirect_to:
            self.send_response(401 if self.needs_password else 301)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Location", self.redirect_to + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        env = os.environ | {
            "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().splitlines()]
        self.send_response(int(dict(fields).get("Status", "200").split()[0]))
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def git_over_https(folder: Path) -> Iterator[tuple[str, type[_Git], Path]]:
    """The address of the repositories below a folder, the server to adjust, and its certificate."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split()
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    handler = type("Git", (_Git,), {"root": folder, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}", handler, certificate
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
