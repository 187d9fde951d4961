"""Bodies of requests that bypass the parser: whole, followed by other requests, refused halfway, broken off."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Iterator
from http.client import parse_headers
from threading import Thread
from typing import BinaryIO

import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from dashboard.app.large_bodies import LARGE_BODY, LargeBody
from dashboard.app.slow_connections import ImpatientProtocol
from tests.end_to_end.product import wait_for

CONTENT = os.urandom(3_000_001)
LIMIT_S = 120


class Reader:
    """An application that reads bodies by memory of its own, all of them or only their beginning."""

    def __init__(self) -> None:
        self.broken_off: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, got = scope.get("extensions", {}).get(LARGE_BODY, {}).get("body"), bytearray()
        if body is None:
            answer = (await Request(scope, receive).body()).decode()
        else:
            answer = await self._read(body, got, once=scope["path"] == "/refused")
        await PlainTextResponse(answer)(scope, receive, send)

    async def _read(self, body: LargeBody, got: bytearray, once: bool) -> str:
        room = memoryview(bytearray(100_000))
        try:
            while count := await body.read_into(room):
                got += room[:count]
                if once:
                    return "refused"
        except ClientDisconnect:
            self.broken_off.append(bytes(got))
            raise
        return hashlib.sha256(got).hexdigest()


@pytest.fixture(params=["uvloop", "asyncio"])
def reader(request: pytest.FixtureRequest) -> Iterator[tuple[Reader, int]]:
    reader = Reader()
    config = uvicorn.Config(
        reader, port=0, http=ImpatientProtocol, loop=request.param, log_config=None, lifespan="off",
        timeout_keep_alive=LIMIT_S,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = Thread(target=lambda: asyncio.run(server.serve()) if request.param == "asyncio" else server.run())
    thread.start()
    wait_for(lambda: server.started or not thread.is_alive(), "the server")
    yield reader, server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), LIMIT_S)


def put(path: str, content: bytes) -> bytes:
    return f"PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def answer(answers: BinaryIO) -> str:
    """Read the next answer on the connection."""
    assert answers.readline().startswith(b"HTTP/1.1 200")
    return answers.read(int(parse_headers(answers)["Content-Length"])).decode()


def test_one_connection_carries_bodies_that_are_read_and_refused_and_other_requests(
    reader: tuple[Reader, int],
) -> None:
    digest, post = hashlib.sha256(CONTENT).hexdigest(), b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
    with connected(reader[1]) as connection, connection.makefile("rb") as answers:
        for _ in range(2):
            connection.sendall(put("/read", CONTENT))
            assert answer(answers) == digest
        connection.sendall(put("/refused", CONTENT))
        assert answer(answers) == "refused"
        connection.sendall(post)
        assert answer(answers) == "abc"
        for content in (b"", b"small", CONTENT[:100_000]):
            connection.sendall(put("/read", content))
            assert answer(answers) == hashlib.sha256(content).hexdigest()


def test_a_request_that_follows_at_once_is_answered_after_it(reader: tuple[Reader, int]) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    with connected(reader[1]) as connection, connection.makefile("rb") as answers:
        requests = put("/read", CONTENT) + put("/read", b"next")
        sending = Thread(target=connection.sendall, args=(requests,))
        sending.start()
        assert answer(answers) == digest
        sending.join()
        assert answer(answers) == hashlib.sha256(b"next").hexdigest()


def test_the_reader_gets_what_arrived_before_the_connection_broke(reader: tuple[Reader, int]) -> None:
    with connected(reader[1]) as connection:
        connection.sendall(put("/read", CONTENT)[:-1000])
    wait_for(lambda: reader[0].broken_off, "the end of the connection")
    assert reader[0].broken_off == [CONTENT[:-1000]]
