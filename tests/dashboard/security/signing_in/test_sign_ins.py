"""Wrong tokens slow down whoever sends them, and lock nobody out."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dashboard.security.keys.token_files import Credentials
from dashboard.security.signing_in.known_addresses import REREAD_AFTER_S, KnownAddress, KnownAddresses
from dashboard.security.signing_in.sign_ins import (
    FORGOTTEN_AFTER_S,
    LONGEST_DELAY_S,
    MOST_ADDRESSES,
    MOST_WAITING,
    SignIns,
    TooManyTries,
)
from dashboard.security.turns import Rank, Standing
from tests.dashboard.running import Running

RIGHT, WRONG = b"a token of more than twenty characters", b"wrong"


class Door:
    """A door whose clock moves only while somebody waits at it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []
        self.stored: set[KnownAddress] = set()
        addresses = KnownAddresses(lambda: self.stored, lambda account: account.partition("@")[0], lambda: self.now)
        self.sign_ins = SignIns(
            Credentials(RIGHT.decode(), "join", "metrics"), addresses, lambda: self.now, self._sleep
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def tries(self, token: bytes, host: str = "10.0.0.1", times: int = 1) -> list[bool]:
        return [await self.sign_ins.is_right(token, scope(host)) for _ in range(times)]


def scope(host: str) -> dict[str, Any]:
    return {"type": "http", "client": (host, 1)}


def test_the_delay_grows_to_a_limit_and_the_right_token_still_enters() -> None:
    door = Door()
    assert asyncio.run(door.tries(WRONG, times=10)) == [False] * 10
    assert door.slept == [0, 0, 0, 0.5, 1, 2, 4, 8, LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert asyncio.run(door.tries(RIGHT, times=2)) == [True, True]
    assert door.slept[10:] == [LONGEST_DELAY_S, 0]


def test_another_address_waits_for_nobody_and_time_forgives() -> None:
    door = Door()
    asyncio.run(door.tries(WRONG, times=9))
    asyncio.run(door.tries(WRONG, "::ffff:10.0.0.1"))
    assert door.slept[-1] == LONGEST_DELAY_S  # the same address in another form
    asyncio.run(door.tries(WRONG, "10.0.0.2"))
    assert door.slept[-1] == 0
    asyncio.run(door.tries(WRONG, "2001:db8::1", times=4))
    asyncio.run(door.tries(WRONG, "2001:db8::2"))
    assert door.slept[-1] == 1  # one network is one person's
    door.now += FORGOTTEN_AFTER_S + 1
    asyncio.run(door.tries(WRONG))
    assert door.slept[-1] == 0


def test_tries_at_the_same_time_are_judged_one_after_another_and_not_without_end() -> None:
    async def at_once(door: Door) -> list[object]:
        tries = (door.sign_ins.is_right(WRONG, scope("10.0.0.1")) for _ in range(30))
        return await asyncio.gather(*tries, return_exceptions=True)

    door = Door()
    outcomes = asyncio.run(at_once(door))
    assert outcomes.count(False) == MOST_WAITING
    assert sum(isinstance(outcome, TooManyTries) for outcome in outcomes) == 30 - MOST_WAITING
    assert door.slept == [0, 0, 0, 0.5, 1, 2, 4, 8]


def test_no_more_addresses_are_remembered_than_the_limit_and_the_log_has_a_line_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Door()

    async def many() -> None:
        for number in range(MOST_ADDRESSES + 10):
            await door.tries(WRONG, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")

    with caplog.at_level(logging.WARNING, "rankzero"):
        asyncio.run(many())
        door.now += 61
        asyncio.run(door.tries(WRONG))
    assert len(door.sign_ins._by_address) == MOST_ADDRESSES
    assert [record.getMessage() for record in caplog.records if record.name == "rankzero"] == [
        "1 sign-ins with a wrong token or password",
        f"{MOST_ADDRESSES + 10} sign-ins with a wrong token or password",
    ]


def test_the_form_and_the_address_with_a_token_share_the_delay(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.security.signing_in.sign_ins.FIRST_DELAY_S", 0.01)
    monkeypatch.setattr("dashboard.security.signing_in.sign_ins.MOST_WAITING", 0)
    browser = shared.anonymous()
    answer = browser.post("/login", data={"token": "wrong"})
    assert answer.status_code == 429 and "wait a minute" in answer.text and answer.headers["retry-after"]
    assert browser.get("/?token=wrong").status_code == 429 and browser.get("/?token=x").headers["retry-after"]
    monkeypatch.undo()
    assert browser.post("/login", data={"token": "wrong"}).status_code == 401
    assert browser.get("/?token=wrong").status_code == 401
    assert browser.get(f"/?token={shared.token}").status_code == 303


async def wrong(_rank: Rank) -> None:
    return None


async def right(rank: Rank) -> str:
    return "ana"


async def eve_is_right(rank: Rank) -> str:
    return "eve"


def test_wrong_passwords_slow_the_account_from_wherever_they_come() -> None:
    door = Door()

    async def tries() -> None:
        assert await door.sign_ins.in_turn(right, scope("10.0.0.1"), "ana") == "ana"
        for number in range(6):
            assert await door.sign_ins.in_turn(wrong, scope(f"10.0.1.{number}"), "ana") is None
        slept_before = len(door.slept)
        await door.sign_ins.in_turn(wrong, scope("10.0.2.1"), "ana")
        await door.sign_ins.in_turn(wrong, scope("10.0.2.2"), "ben")
        await door.sign_ins.in_turn(right, scope("10.0.0.1"), "ana")
        assert [delay > 0 for delay in door.slept[slept_before:]] == [True, False, False]

    asyncio.run(tries())


def test_whoever_shares_an_address_gets_no_more_guesses_by_signing_in_themselves() -> None:
    door = Door()

    async def tries() -> None:
        await door.sign_ins.in_turn(right, scope("10.0.0.1"), "ana")
        for _ in range(4):
            await door.sign_ins.in_turn(wrong, scope("10.0.0.1"), "ana")
            await door.sign_ins.in_turn(eve_is_right, scope("10.0.0.1"), "eve")
        slept_before = len(door.slept)
        await door.sign_ins.in_turn(wrong, scope("10.0.0.1"), "ana")
        await door.sign_ins.in_turn(eve_is_right, scope("10.0.0.1"), "eve")
        assert [delay > 0 for delay in door.slept[slept_before:]] == [True, False]

    asyncio.run(tries())


def test_many_strangers_at_one_account_keep_nobody_waiting_for_their_turn() -> None:
    async def at_once(door: Door) -> list[str | None]:
        tries = (door.sign_ins.in_turn(wrong, scope(f"10.0.1.{number}"), "ana") for number in range(250))
        return await asyncio.gather(*tries, door.sign_ins.in_turn(right, scope("10.0.0.1"), "ana"))

    door = Door()
    assert asyncio.run(at_once(door)) == [None] * 250 + ["ana"]
    asyncio.run(at_once(door))
    assert door.slept[-1] == 0 and max(door.slept) == LONGEST_DELAY_S, "her own address is slowed by none of them"


def test_addresses_are_ranked_by_who_signed_in_there_and_how_often_they_ask() -> None:
    door, ranks = Door(), list[Rank]()
    door.stored = {KnownAddress("10.0.0.9", "ana")}

    async def judge(rank: Rank) -> str | None:
        ranks.append(rank)
        return "ben" if len(ranks) == 3 else None

    async def tries() -> None:
        for host in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.9"):
            await door.sign_ins.in_turn(judge, scope(host), "ben@lab.example")

    asyncio.run(tries())
    stranger, known = Standing.STRANGER, Standing.KNOWN
    assert ranks == [(stranger, 1), (stranger, 2), (stranger, 3), (known, 1), (known, 1)]
    door.stored.add(KnownAddress("10.0.0.8", "ana"))
    door.now += REREAD_AFTER_S
    asyncio.run(door.sign_ins.in_turn(judge, scope("10.0.0.8"), "ben"))
    assert ranks[-1] == (known, 1), "another dashboard has let somebody in there"
