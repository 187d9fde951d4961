"""Places in runs for processes that watch what others launch."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer, document
from dashboard.security.header_values import NO_STORE
from dashboard.watching.watching import watch
from domain.watching.messages import WatchAnswer, WatchRequest

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["workers"])


@router.post("/watch")
def take_place(service: TheService, request: WatchRequest) -> Response:
    """Give a process that watches a command its place in a run; the same place for the same `watch_id`.

    `place`: `joined` with a guest node's token; `waits`: ask again; `refused`, with the reason as `message`."""
    return answer(_document(watch(service, request)), 200, NO_STORE)


def _document(given: WatchAnswer) -> dict[str, Any]:
    """Return the answer, its spec without defaults: a watcher that lacks a new field can read what uses none."""
    content: dict[str, Any] = document(given)
    if given.assignment is not None:
        content["assignment"]["spec"] = document(given.assignment.spec.model_dump(exclude_defaults=True))
    return content
