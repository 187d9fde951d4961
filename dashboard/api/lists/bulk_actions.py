"""Routes of what is done to many runs at once: begin, follow, cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from starlette.requests import HTTPConnection
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.api.runs.searches import parsed
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.service.bulk_actions import MOST_FOUND, BulkActions, BulkRequest
from dashboard.service.overview import Filter, run_ids
from dashboard.service.service import Service

router = APIRouter(route_class=JsonRoute, prefix="/api/bulk-actions", tags=["runs"])


async def bulk_actions_of(connection: HTTPConnection) -> BulkActions:
    """The actions of the application that handles the request."""
    actions: BulkActions = connection.app.state.bulk_actions
    return actions


TheActions = Annotated[BulkActions, Depends(bulk_actions_of)]
ActionId = Annotated[str, Path(max_length=40)]


@router.post("", status_code=202)
def begin(service: TheService, actions: TheActions, request: BulkRequest) -> Response:
    """Stop, delete, archive, list again or tag many runs in the background; returns the action as `show` does."""
    runs = request.runs or _found(service, request.filter or "")
    return answer(actions.begin(request, runs).document(), 202)


@router.get("/{action_id}")
def show(actions: TheActions, action_id: ActionId) -> Response:
    """How far an action is. `state`: running, done, cancelled; `refused`: runs that were not changed, and why;
    `freed_bytes`: what deleted runs held in checkpoints, logs and event files; `changed`: once it has ended."""
    return answer(actions.find(action_id).document())


@router.post("/{action_id}/cancel")
def cancel(actions: TheActions, action_id: ActionId) -> Response:
    """Reach no further run; what was done stays done."""
    return answer(actions.cancel(action_id).document())


def _found(service: Service, search: str) -> list[str]:
    """The runs that a search finds, newest first. Raises Rejection where it finds none, or too many."""
    now = service.now_for_contact()
    parsed(search, now)
    runs = run_ids(service.store, now, Filter(search=search), "", MOST_FOUND + 1)
    if not runs or len(runs) > MOST_FOUND:
        rule = "No run matches." if not runs else f"More than {MOST_FOUND:,} runs match; narrow the search."
        raise Rejection(422, rule, "filter")
    return runs
