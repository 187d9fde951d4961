"""Strict JSON bodies for all routes: text is Unicode, and whole numbers have at most 64 bits."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from dashboard.errors import Rejection

LEAST, MOST = -(2**63), 2**63 - 1
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


class JsonRoute(APIRoute):
    """A route whose JSON body holds only values that the store can keep."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, wrapped so that it reads bodies strictly."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


class _StrictRequest(Request):
    async def json(self) -> Any:
        """The parsed body. Raises JSONDecodeError, Rejection."""
        if not hasattr(self, "_read"):
            self._read = read(await self.body())
        return self._read


def read(body: bytes) -> Any:
    """Parse a JSON document. Raises JSONDecodeError (also for unpaired surrogates), Rejection."""
    try:
        document = _ANYTHING.validate_json(body)
    except ValidationError as error:
        raise json.JSONDecodeError(str(error.errors()[0].get("ctx", {}).get("error")), "", 0) from None
    if (path := _beyond_64_bits(document)) is not None:
        subject = ".".join(path) or "The body"
        raise Rejection(422, f"{subject} must be a number of at most 64 bits.", path[0] if path else None)
    return document


def _beyond_64_bits(document: Any) -> list[str] | None:
    """The path of names to the first number that is too large; None when there is none."""
    pending: list[tuple[list[str], Any]] = [([], document)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, int) and not LEAST <= value <= MOST:
            return path
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            pending += [([*path, str(name)], item) for name, item in items]
    return None
