"""A header on every response of the API that says why nothing can be stored at the moment."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

WARNING = "X-Rankzero-Warning"


class Warned:
    """Adds the current warning, if there is one, to every response below /api."""

    def __init__(self, app: ASGIApp, sentence: Callable[[], str | None]) -> None:
        self.app, self._sentence = app, sentence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wrap `send` so that the response's first message carries the header."""
        sentence = self._sentence() if scope["type"] == "http" and scope["path"].startswith("/api/") else None
        if sentence is None:
            await self.app(scope, receive, send)
            return

        async def send_with_warning(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(WARNING, sentence)
            await send(message)

        await self.app(scope, receive, send_with_warning)
