"""A coding agent at a dashboard of the tests, which speaks by the SDK's own client."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from sqlalchemy import update

from db import acting
from db.models import AccessToken
from domain.people.roles import Scope
from domain.people.tokens import TokenWanted
from tests.dashboard.running import Running

T = TypeVar("T")
NEW, OLD = "2026-07-28", "legacy"
"""The two revisions, as the SDK's client names them."""


@dataclass(frozen=True)
class Said:
    """What a tool answered."""

    text: str
    is_error: bool

    @property
    def document(self) -> Any:
        """The answer as JSON."""
        assert not self.is_error, self.text
        return json.loads(self.text)

    @property
    def mark(self) -> str:
        """The mark of its fence."""
        return str(self.document["fence"]).split("<")[1].split(">")[0]

    def outside(self) -> str:
        """What stands outside of the fences."""
        text, mark = self.text.replace(self.document["fence"], "", 1), self.mark
        while f"<{mark}>" in text:
            before, _, rest = text.partition(f"<{mark}>")
            text = before + rest.partition(f"</{mark}>")[2]
        return text


class Agent:
    """An agent with a token."""

    def __init__(self, dashboard: Running, token: str | None = None, mode: str = NEW) -> None:
        self.dashboard, self.token, self.mode = dashboard, token or dashboard.token, mode

    def call(self, tool: str, **arguments: Any) -> Said:
        """Call a tool."""

        async def ask(client: Client) -> Said:
            result = await client.call_tool(tool, arguments)
            return Said("".join(part.text for part in result.content), bool(result.is_error))

        return self.do(ask)

    def do(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """Connect, and do something with the SDK's client."""

        async def connected() -> T:
            with self.dashboard.anonymous(Authorization=f"Bearer {self.token}") as http:
                transport = httpx2.AsyncClient(transport=Portless(http), base_url=self.dashboard.url)
                server = streamable_http_client(f"{self.dashboard.url}/mcp", http_client=transport)
                async with Client(server, mode=self.mode) as client:
                    return await ask(client)

        return anyio.run(connected)


class Portless(httpx2.AsyncBaseTransport):
    """Sends an asynchronous client's requests by one that reaches the dashboard of the tests without a port."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, and read its whole answer."""
        content = await request.aread()
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        answer = await anyio.to_thread.run_sync(
            lambda: self._http.request(request.method, str(request.url), headers=headers, content=content)
        )
        kept = {name: value for name, value in answer.headers.items() if name != "content-encoding"}
        return httpx2.Response(answer.status_code, headers=kept, content=answer.content)


def token_of(dashboard: Running, name: str, scope: str, budget_s: float | None = None, **more: Any) -> str:
    """Make a token of the owner, with a budget where one is given; its secret."""
    answer = dashboard.http.post("/api/tokens", json={"name": name, "scope": scope} | more)
    assert answer.status_code == 201, answer.text
    if budget_s is not None:
        with dashboard.service.store.write() as session:
            session.execute(update(AccessToken).where(AccessToken.name == name).values(budget_s=budget_s))
    return str(answer.json()["token"])


def token_as(dashboard: Running, name: str, scope: Scope = Scope.READ) -> str:
    """Make a token of another person; its secret."""
    rights = dashboard.service.identities.rights(name)
    assert rights is not None
    with acting.acting(rights):
        return dashboard.service.access_tokens.make(TokenWanted(f"of {name}", scope))[1]
