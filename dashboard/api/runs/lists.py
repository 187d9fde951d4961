"""Lists of runs: actions on many, saved views, projects."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
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
from db.people import consequences
from db.runs import projects
from db.search import saved_views
from domain.search.parser import NamedView

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])


async def bulk_actions_of(connection: HTTPConnection) -> BulkActions:
    """The actions of the application that handles the request."""
    actions: BulkActions = connection.app.state.bulk_actions
    return actions


TheActions = Annotated[BulkActions, Depends(bulk_actions_of)]
ActionId = Annotated[str, Path(max_length=40)]


@router.post("/bulk-actions", status_code=202)
def begin(service: TheService, actions: TheActions, request: BulkRequest) -> Response:
    """Stop, delete, restore, archive, unarchive or tag many runs in the background; the answer is `show`'s."""
    runs = request.runs or _found(service, request.filter or "")
    return answer(actions.begin(request, runs).document(), 202)


@router.post("/bulk-actions/consequence")
def consequence(service: TheService, request: BulkRequest) -> Response:
    """Whose runs the action would reach beside yours: `sentence` is empty where all are yours; nothing is done."""
    runs = request.runs or _found(service, request.filter or "")
    return answer(consequences.of_runs(service.store, runs))


@router.get("/bulk-actions/{action_id}")
def show(actions: TheActions, action_id: ActionId) -> Response:
    """How far an action is. `state`: running, done, cancelled; `refused`: runs that were not changed, and why;
    `freed_bytes`: what deleted runs hold in checkpoints, logs and event files, free from `kept_until` on (null: now);
    `can_undo`: whether they can be restored (the action `restore`); `changed`: once it has ended."""
    return answer(actions.find(action_id).document())


@router.post("/bulk-actions/{action_id}/cancel")
def cancel(actions: TheActions, action_id: ActionId) -> Response:
    """Reach no further run; finished changes stay."""
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


# Saved views of the list of runs, the same for everybody.


@router.get("/views")
def views(service: TheService) -> Response:
    """All saved views: [{"name", "filter", "states", "project", "columns", "sort"}]."""
    return answer(saved_views.saved(service.store))


@router.put("/views")
def save(service: TheService, view: NamedView) -> Response:
    """Save a view instead of an earlier one of its name; returns all."""
    saved_views.save(service.store, view, service.clock())
    return answer(saved_views.saved(service.store))


@router.delete("/views")
def forget(service: TheService, name: Annotated[str, Query(max_length=200)]) -> Response:
    """Delete a view; returns the others."""
    saved_views.forget(service.store, name)
    return answer(saved_views.saved(service.store))


# A project as a whole.


@router.get("/project")
def project(service: TheService, name: Annotated[str, Query(min_length=1, max_length=200)]) -> Response:
    """A project: its runs by state, the metric they are judged by, its baseline and best run, and its last weeks."""
    return answer(projects.project(service.store, name, service.clock()))
