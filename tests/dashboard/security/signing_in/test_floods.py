"""Hundreds of addresses at the sign-in: most are sent away at once, and neither people nor their browsers wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import select

from dashboard.security.turns import FIRST
from db.models import AuditEntry
from db.people import accounts, passwords
from domain.people.audit import AuditAction
from domain.people.roles import Role
from tests.dashboard.in_process import connected
from tests.dashboard.persons import person
from tests.dashboard.running import LIMIT_S, Running, running
from tests.end_to_end.product import WITHOUT_TLS, wait_for

PASSWORD = "correct horse"
FLOOD = 250


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Running]:
    """A dashboard behind a proxy, with somebody who has a password and has signed in at home."""
    with running(tmp_path / "data", on_port=True, trusted_proxies=["127.0.0.1"]) as site:
        name = person(site.service, "ana", Role.MEMBER)
        accounts.set_password(site.service.store, name, passwords.hashed(PASSWORD))
        site.service.sessions.begin(name, "password", "198.51.100.7")
        yield site


@contextmanager
def hashing_stopped(site: Running) -> Iterator[ExitStack]:
    """All turns at hashing are taken, until the block ends or the stack is closed."""
    with ExitStack() as turns:
        for _ in range(passwords.AT_ONCE):
            turns.enter_context(site.service.hashing.taken(FIRST))
        yield turns


def browser(site: Running) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=site.url, timeout=LIMIT_S, limits=limits, **WITHOUT_TLS)


async def try_in(http: httpx2.AsyncClient, host: str, password: str, who: str = "ana") -> httpx2.Response:
    form = {"person": who, "password": password}
    return await http.post("/login", data=form, headers={"X-Forwarded-For": host})


def test_flood_is_sent_away_and_people_go_first(site: Running) -> None:
    async def scenario() -> None:
        async with browser(site) as http:
            with hashing_stopped(site) as turns:
                flood = [asyncio.create_task(stranger(http, number)) for number in range(FLOOD)]
                refused = await first_done(flood, FLOOD - passwords.MOST_WAITING)
                assert {answer.status_code for answer in refused} == {503}
                assert "wait a few seconds, then try again" in refused[0].text and refused[0].headers["retry-after"]
                new = asyncio.create_task(try_in(http, "192.0.2.1", PASSWORD))
                home = asyncio.create_task(try_in(http, "198.51.100.7", PASSWORD))
                await first_done(flood, FLOOD - passwords.MOST_WAITING + 2)
                turns.close()
                assert {answer.status_code for answer in await asyncio.gather(new, home)} == {303}
            judged = [task for task in flood if task.done() and task.result().status_code == 401]
            assert len(judged) <= 2 * passwords.AT_ONCE, "whoever has just come, or came before, waits for few"
            for task in flood:
                task.cancel()

    asyncio.run(scenario())


async def stranger(http: httpx2.AsyncClient, number: int) -> httpx2.Response:
    who = "ana" if number % 2 else f"nobody-{number}"
    return await try_in(http, f"203.0.{number >> 8}.{number & 255}", "wrong", who)


async def first_done(tasks: list[asyncio.Task[httpx2.Response]], count: int) -> list[httpx2.Response]:
    """Wait until so many tasks are done; their answers."""
    while len(done := [task.result() for task in tasks if task.done()]) < count:
        await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
    return done


def test_abandoned_tries_are_not_judged(site: Running) -> None:
    form = b"person=ana&password=wrong"
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(form)}\r\n\r\n".encode()
    with hashing_stopped(site):
        with connected(site.url) as connection:
            connection.sendall(head + form)
            wait_for(lambda: site.service.hashing.waiting == 1, "the try to wait")
        wait_for(lambda: site.service.hashing.waiting == 0, "the abandoned try to be dropped")
    with site.service.store.read() as session:
        refused = select(AuditEntry.object).where(AuditEntry.action == AuditAction.SIGN_IN_REFUSED)
        assert session.scalars(refused).all() == []


def test_passwords_of_those_who_are_in_wait_for_no_stranger(site: Running) -> None:
    """Their hashes take turns too, so that links and own passwords cannot fill the machine either."""
    _, secret = site.service.people.invite("new@lab.example")
    form = {"name": "new", "password": PASSWORD}

    async def accept(http: httpx2.AsyncClient) -> httpx2.Response:
        return await http.post(f"/invite/{secret}", data=form, headers={"Origin": site.url})

    async def scenario() -> None:
        async with browser(site) as http:
            with hashing_stopped(site) as turns:
                tries = [asyncio.create_task(accept(http)) for _ in range(passwords.MOST_WAITING + 5)]
                (first, *_), _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
                assert first.result().status_code in (429, 503) and first.result().headers["retry-after"]
                turns.close()
            statuses = [answer.status_code for answer in await asyncio.gather(*tries)]
            assert statuses.count(303) == 1 and set(statuses) <= {303, 410, 429, 503}

    asyncio.run(scenario())


def test_holders_of_a_link_do_not_go_before_known_addresses(site: Running) -> None:
    """A link may have leaked, and is good until somebody accepts it: its tries take no place of people at home."""
    _, secret = site.service.people.invite("new@lab.example")

    async def accept(http: httpx2.AsyncClient, number: int) -> httpx2.Response:
        form, host = {"name": "ana", "password": PASSWORD}, f"203.0.113.{number}"
        return await http.post(f"/invite/{secret}", data=form, headers={"X-Forwarded-For": host})

    async def scenario() -> None:
        async with browser(site) as http:
            with hashing_stopped(site) as turns:
                crowd = [asyncio.create_task(accept(http, number)) for number in range(passwords.MOST_WAITING + 1)]
                await first_done(crowd, 1)
                home = asyncio.create_task(try_in(http, "198.51.100.7", PASSWORD))
                await first_done([*crowd, home], 2)
                turns.close()
            assert (await home).status_code == 303
            await asyncio.gather(*crowd)

    asyncio.run(scenario())


def test_no_header_signs_in_or_counts_as_a_try(site: Running) -> None:
    """Without a proxy that signs people in, no header is one of its."""
    for header in ("rankzero-no-proxy", "x-forwarded-email", "x-forwarded-user", "remote-user"):
        sent = {header: "boss@lab.example", "X-Forwarded-For": "203.0.113.1"}
        assert site.anonymous(**sent).get("/api/runs").status_code == 401
        assert site.anonymous(**sent).post("/login", data={"person": "ana", "password": "x"}).status_code in (401, 429)
    with site.service.store.read() as session:
        refused = select(AuditEntry.object).where(AuditEntry.action == AuditAction.SIGN_IN_REFUSED)
        assert set(session.scalars(refused)) == {"ana"}
