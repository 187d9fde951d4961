"""What it costs to judge each request, and to list only the runs that its sender sees.

Processor time of this process, in which the application answers; no network, and no client.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from fastapi import FastAPI
from sqlalchemy import func, update
from starlette.types import Message

from benchmarks.figures import Figure, Spread, in_turns, milliseconds, ratios
from benchmarks.rows.many_runs import seeded, windows_s
from dashboard.app.server import create_app
from dashboard.security.guard import policy
from dashboard.service.service import Service
from db import acting
from db.models import Run
from domain.people.roles import Role, Scope
from domain.people.tokens import TokenWanted
from tests.dashboard.persons import person

PROJECTS = 10
"""Half of them are private, and the member in none of these."""
LIST, PATH = "list, by urgency", "/api/runs/run0000003/history"
MOST_TIMES = 1.2


def measure(quick: bool) -> Iterator[Figure]:
    """A window of the list and a request about one run, by a member, and where there are no rights."""
    runs, rounds = (60, 2) if quick else (10_000, 40)
    with tempfile.TemporaryDirectory() as folder:
        service = seeded(Path(folder), runs)
        token = token_of_member(service)
        with mock.patch.object(policy, "guarded", lambda routes, _store: list(routes)):
            bare = create_app(service.settings, service, with_pages=False)
        app = create_app(service.settings, service, with_pages=False)
        members = {f"list of {runs:,}": listing(service, "ana", runs), "request about one": asking(app, token)}
        others = [listing(service, "owner", runs), asking(bare, service.credentials.user)]
        for (what, act), other in zip(members.items(), others, strict=True):
            seconds = in_turns({"member": act, "other": other}, rounds)
            ours, theirs = (milliseconds(Spread.of(spent).median) for spent in seconds.values())
            ratio = ratios(seconds["member"], seconds["other"])
            yield Figure(f"{what}, by a member", ours, "without rights", theirs, ratio, MOST_TIMES, "less")
        service.close()


def listing(service: Service, name: str, runs: int) -> Callable[[], float]:
    """An act: the processor seconds of a window that nobody asked for before, for that person."""
    windows = windows_s(service, LIST, None, runs)

    def ask() -> float:
        with acting.acting(service.identities.person(name)):
            return next(windows)

    return ask


def token_of_member(service: Service) -> str:
    """Spread the runs over the projects, half of them private, and return a member's token."""
    with service.store.write() as session:
        session.execute(update(Run).values(project="p" + func.substr(Run.id, -1), by="owner"))
    for number in range(0, PROJECTS, 2):
        service.people.set_privacy(f"p{number}", True)
    with acting.acting(service.identities.person(person(service, "ana", Role.MEMBER))):
        return service.access_tokens.make(TokenWanted("bench", Scope.READ))[1]


def asking(app: FastAPI, token: str) -> Callable[[], float]:
    """An act: the processor seconds of an answer, the mean of ten."""

    async def ask() -> float:
        began = time.process_time()
        for _ in range(10):
            await answer(app, PATH, token)
        return (time.process_time() - began) / 10

    loop = asyncio.new_event_loop()
    return lambda: loop.run_until_complete(ask())


async def answer(app: FastAPI, path: str, token: str) -> None:
    """Ask once; the answer must be a success."""
    fields = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "headers": fields, "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1), "app": app,
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        assert message.get("status", 200) == 200, message

    await app(scope, receive, send)
