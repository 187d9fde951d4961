"""Receivers of alerts on this machine: HTTP servers that answer, lie or are slow, and a small mail server."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Received:
    """One request or mail: the lines before its body, and its body."""

    head: str
    body: bytes

    def header(self, name: str) -> str:
        """The value of a header."""
        lines = (line.partition(": ") for line in self.head.split("\r\n"))
        return next(value for title, _, value in lines if title.lower() == name)


@dataclass
class Receiver:
    """A server that remembers what it received."""

    port: int = 0
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    is_endless: bool = False
    received: list[Received] = field(default_factory=list)
    silence: threading.Event | None = None
    """Set once a slow receiver may go on."""


@contextmanager
def serving(handler: type[socketserver.StreamRequestHandler], receiver: Receiver) -> Iterator[Receiver]:
    """Serve on a free port until the end, in threads that are over then."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.receiver = False, receiver
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.silence is not None:
            receiver.silence.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Http(socketserver.StreamRequestHandler):
    """Reads one request, and answers whatever its receiver says."""

    def handle(self) -> None:
        receiver, lines = self.server.receiver, []
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            lines.append(line.decode())
        received = Received("".join(lines), b"")
        length = int(received.header("content-length")) if lines else 0
        received.body = self.rfile.read(length)
        receiver.received.append(received)
        if receiver.silence is not None:
            receiver.silence.wait()
            return
        try:
            self.wfile.write(receiver.answer)
            while receiver.is_endless:
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass


class Mail(socketserver.StreamRequestHandler):
    """As much of SMTP as a sender of one mail needs."""

    def handle(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self._say("354 go on")
                self._read_mail()
            self._say("221 bye" if verb == b"QUIT" else "250 ok")
            if verb == b"QUIT":
                return

    def _read_mail(self) -> None:
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line)
        head, _, body = b"".join(lines).partition(b"\r\n\r\n")
        self.server.receiver.received.append(Received(head.decode(), body))

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())
