"""Saved views of the list of runs, the same for everybody."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from db.search import saved_views
from domain.search.parser import NamedView

router = APIRouter(route_class=JsonRoute, prefix="/api/views", tags=["runs"])


@router.get("")
def views(service: TheService) -> Response:
    """All saved views: [{"name", "filter", "states", "project", "columns", "sort"}]."""
    return answer(saved_views.saved(service.store))


@router.put("")
def save(service: TheService, view: NamedView) -> Response:
    """Save a view instead of an earlier one of its name; returns all."""
    saved_views.save(service.store, view, service.clock())
    return answer(saved_views.saved(service.store))


@router.delete("")
def forget(service: TheService, name: Annotated[str, Query(max_length=200)]) -> Response:
    """Delete a view; returns the others."""
    saved_views.forget(service.store, name)
    return answer(saved_views.saved(service.store))
