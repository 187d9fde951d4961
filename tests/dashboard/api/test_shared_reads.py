"""Requests that ask the same share one read, and none gets what was read before it asked."""

from __future__ import annotations

import asyncio
import threading

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from dashboard.api.shared_reads import SharedAnswers, SharedReads

WAIT_S = 60


class SlowReads:
    """Reads that last until they are let go; each says how many writes it has seen."""

    def __init__(self) -> None:
        self.writes = self.reads = 0
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    async def read(self) -> bytes:
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        self.reads += 1
        seen = self.writes
        self.begun.release()
        assert self.go.acquire(timeout=WAIT_S)
        return str(seen).encode()


def test_who_asks_during_a_read_shares_the_next_one():
    async def ask() -> tuple[list[bytes], int]:
        slow, shared = SlowReads(), SharedReads[bytes]()
        first = asyncio.create_task(shared.get("list", slow.read))
        await asyncio.to_thread(slow.begun.acquire, timeout=WAIT_S)
        slow.writes += 1
        others = [asyncio.create_task(shared.get("list", slow.read)) for _ in range(200)]
        await asyncio.sleep(0)
        others[0].cancel()  # a client that goes away takes nobody's answer
        slow.go.release(2)
        answers = await asyncio.gather(first, *others[1:])
        slow.go.release()
        answers.append(await shared.get("list", slow.read))
        return answers, slow.reads

    answers, reads = asyncio.run(asyncio.wait_for(ask(), WAIT_S))
    assert answers == [b"0", *[b"1"] * 200] and reads == 3


def test_who_asks_while_others_come_in_shares_their_read():
    async def ask() -> int:
        slow, shared = SlowReads(), SharedReads[bytes]()
        slow.go.release(2)
        asking = []
        for _ in range(5):
            asking.append(asyncio.create_task(shared.get("list", slow.read)))
            await asyncio.sleep(0)
        await asyncio.gather(*asking)
        return slow.reads

    assert asyncio.run(asyncio.wait_for(ask(), WAIT_S)) == 1


def test_other_questions_are_read_for_themselves():
    async def ask() -> list[bytes]:
        shared = SharedReads[bytes]()
        return await asyncio.gather(*(shared.get(key, lambda key=key: echo(key)) for key in "aba"))

    async def echo(key: str) -> bytes:
        return key.encode()

    assert asyncio.run(ask()) == [b"a", b"b", b"a"]


def test_an_error_reaches_all_who_share_the_read_and_no_later_one():
    async def fail() -> bytes:
        raise RuntimeError("the store is away")

    async def succeed() -> bytes:
        return b"back"

    async def ask() -> bytes:
        shared = SharedReads[bytes]()
        errors = await asyncio.gather(*(shared.get(1, fail) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in errors] == ["the store is away"] * 3
        with pytest.raises(RuntimeError):
            await shared.get(1, fail)
        return await shared.get(1, succeed)

    assert asyncio.run(ask()) == b"back"


def test_the_list_is_answered_once_for_all_who_ask_for_it_and_all_else_for_each():
    answered: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answered.append(str(request.url.path) + str(request.url.query))
        await PlainTextResponse(answered[-1], 202, {"x-own": "1"})(scope, receive, send)

    async def ask() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=SharedAnswers(app))
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            addresses = ["/api/runs", "/api/runs", "/api/runs?q=a", "/api/nodes", "/api/nodes"]
            gets = [client.get(address) for address in addresses]
            return await asyncio.gather(*gets, client.post("/api/runs"), client.post("/api/runs"))

    answers = asyncio.run(asyncio.wait_for(ask(), WAIT_S))
    assert [(each.status_code, each.headers["x-own"]) for each in answers] == [(202, "1")] * 7
    assert [each.text for each in answers[:5]] == [
        "/api/runs", "/api/runs", "/api/runsq=a", "/api/nodes", "/api/nodes",
    ]  # fmt: skip
    assert sorted(answered) == ["/api/nodes"] * 2 + ["/api/runs"] * 3 + ["/api/runsq=a"]
