"""Answers that many request at once or again: read once for all, compressed once, 304 while unchanged."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.json_responses import text_of
from db import acting
from db.people.visibility import visibility
from domain.clock import SYSTEM_CLOCK


class SharedAnswers:
    """Answers all who ask for one address with one answer, which is read after they have asked."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._reads = SharedReads[list[Message]]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Share the answer of a GET of one of the paths; pass on all other requests."""
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in SHARED_PATHS:
            await self.app(scope, receive, send)
            return
        key = scope["path"], scope["query_string"], visibility(), acting.rights().by  # for searches of `by:me`
        for message in await self._reads.get(key, lambda: self._answer(scope, receive)):
            await send({**message})  # the layers around add headers to their own

    async def _answer(self, scope: Scope, receive: Receive) -> list[Message]:
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self.app(scope, receive, keep)
        return messages


T = TypeVar("T")
SHARED_PATHS = frozenset({"/api/runs"})
"""Their answers depend on the address alone, and are the same for all who see the same projects."""
COMING_IN_S, MOST_LOOKS = 0.001, 20
"""While requests keep coming in, a read waits for them: so often, for so long each time."""


class SharedReads(Generic[T]):
    """Answers of reads that begin after all who share them have asked: nobody gets what was read before."""

    def __init__(self) -> None:
        self._reading: dict[Hashable, asyncio.Task[T]] = {}
        self._next: dict[Hashable, asyncio.Task[T]] = {}
        self._asking: Counter[Hashable] = Counter()

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return what the next read of this key gives; raises what it raises."""
        if key not in self._next:
            self._next[key] = asyncio.create_task(self._read(key, read))
        self._asking[key] += 1
        return await asyncio.shield(self._next[key])

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        if key in self._reading:
            await asyncio.wait([self._reading[key]])
        await self._until_all_are_in(key)
        self._reading[key] = self._next.pop(key)  # from here on others need a newer read
        del self._asking[key]
        try:
            return await read()
        finally:
            if self._reading[key] is asyncio.current_task():
                del self._reading[key]

    async def _until_all_are_in(self, key: Hashable) -> None:
        """Wait while further requests come in: a read that is begun between them has to be repeated."""
        for _ in range(MOST_LOOKS):
            before = self._asking[key]
            await SYSTEM_CLOCK.sleep(COMING_IN_S)
            if self._asking[key] == before:
                return


# Responses that many browsers request repeatedly: compressed once, and 304 while nothing changed.


class Tagged(NamedTuple):
    """JSON text, gzipped, and the tag of its content."""

    text: bytes
    tag: str


def tagged(value: Any) -> Tagged:
    """Convert anything the store returns to gzipped JSON and its tag."""
    text = text_of(value).encode()
    return Tagged(gzip.compress(text, 1, mtime=0), hashlib.sha256(text).hexdigest()[:16])


def takes_gzip(request: Request) -> bool:
    """Whether the client takes a response that is gzipped."""
    return "gzip" in request.headers.get("accept-encoding", "")


def answer_tagged(request: Request, content: Tagged) -> Response:
    """A response with the content, or 304 when the client already has it."""
    headers = {"ETag": f'"{content.tag}"', "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if takes_gzip(request):
        encoded = headers | {"Content-Encoding": "gzip"}
        return Response(content.text, media_type="application/json", headers=encoded)
    return Response(gzip.decompress(content.text), media_type="application/json", headers=headers)
