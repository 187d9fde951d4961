"""Requests that ask the same share one read, and none gets what was read before it asked."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dashboard.api.shared_reads import SharedReads

WAIT_S = 60


class SlowReads:
    """Reads that last until they are let go; each says how many writes it has seen."""

    def __init__(self) -> None:
        self.writes = self.reads = 0
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def read(self) -> bytes:
        self.reads += 1
        seen = self.writes
        self.begun.release()
        assert self.go.acquire(timeout=WAIT_S)
        return str(seen).encode()


def test_who_asks_during_a_read_shares_the_next_one():
    async def ask() -> tuple[list[bytes], int]:
        slow, shared = SlowReads(), SharedReads()
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


def test_other_questions_are_read_for_themselves():
    async def ask() -> list[bytes]:
        shared = SharedReads()
        return await asyncio.gather(*(shared.get(key, key.encode) for key in "aba"))

    assert asyncio.run(ask()) == [b"a", b"b", b"a"]


def test_an_error_reaches_all_who_share_the_read_and_no_later_one():
    def fail() -> bytes:
        raise RuntimeError("the store is away")

    async def ask() -> bytes:
        shared = SharedReads()
        errors = await asyncio.gather(*(shared.get(1, fail) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in errors] == ["the store is away"] * 3
        with pytest.raises(RuntimeError):
            await shared.get(1, fail)
        return await shared.get(1, lambda: b"back")

    assert asyncio.run(ask()) == b"back"
