"""Turns at costly work: known senders first, an end to the queue, and nobody keeps a turn after leaving."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.security.turns import FIRST, NoTurn, Rank, Standing, Turns
from tests.end_to_end.product import wait_for

KNOWN, STRANGER = Rank(Standing.KNOWN), Rank(Standing.STRANGER, 1)


class Work:
    """Work that goes on until it is let go, and writes down who began it."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.begun = turns, list[str]()
        self.go = asyncio.Event()

    async def do(self, name: str, rank: Rank) -> str:
        async with self.turns.awaited(rank):
            self.begun.append(name)
            await self.go.wait()
        return name

    async def begin(self, name: str, rank: Rank) -> asyncio.Task[str]:
        """Ask for a turn, and return once that is done."""
        task = asyncio.create_task(self.do(name, rank))
        await asyncio.sleep(0)
        return task


def test_known_senders_go_first_and_of_strangers_whoever_asked_least_and_last() -> None:
    async def scenario() -> list[str]:
        work = Work(Turns(1, 10))
        wanted = [("now", STRANGER), ("often", Rank(Standing.STRANGER, 5)), ("old", STRANGER), ("new", STRANGER)]
        tasks = [await work.begin(name, rank) for name, rank in [*wanted, ("known", KNOWN), ("signed in", FIRST)]]
        work.go.set()
        await asyncio.gather(*tasks)
        return work.begun

    assert asyncio.run(scenario()) == ["now", "signed in", "known", "new", "old", "often"]


def test_queue_has_an_end_where_whoever_ranks_last_is_sent_away_at_once() -> None:
    async def scenario() -> None:
        work = Work(Turns(1, 2))
        busy, hasty, patient = [await work.begin(name, Rank(Standing.STRANGER, 3)) for name in "abc"]
        known = await work.begin("known", KNOWN)
        with pytest.raises(NoTurn, match="try again"):
            await hasty
        with pytest.raises(NoTurn):
            await work.do("more", Rank(Standing.STRANGER, 9))
        work.go.set()
        assert await asyncio.gather(busy, known, patient) == ["a", "known", "c"]

    asyncio.run(scenario())


def test_whoever_leaves_gives_the_place_and_the_turn_back() -> None:
    async def scenario() -> None:
        work = Work(Turns(1, 5))
        first, second, third = [await work.begin(name, STRANGER) for name in "abc"]
        third.cancel()
        await asyncio.wait([third])
        assert work.turns.waiting == 1
        first.cancel()
        await asyncio.wait([first])
        work.go.set()
        assert await second == "b" and work.begun == ["a", "b"]
        assert await work.do("d", STRANGER) == "d"

    asyncio.run(scenario())


def test_threads_and_tasks_share_the_turns() -> None:
    turns = Turns(1, 5)

    def in_thread() -> str:
        with turns.taken():
            return "thread"

    async def scenario(pool: ThreadPoolExecutor) -> None:
        async with turns.awaited(STRANGER):
            waits = pool.submit(in_thread)
            await asyncio.to_thread(wait_for, lambda: turns.waiting == 1, "the thread to ask")
            assert not waits.done()
        assert await asyncio.wrap_future(waits) == "thread"

    with ThreadPoolExecutor(1) as pool:
        asyncio.run(scenario(pool))
