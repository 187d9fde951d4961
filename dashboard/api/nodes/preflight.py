"""Preflights: whether some nodes can train together, cell by cell."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["nodes"])
Nodes = Annotated[
    list[Annotated[str, Body(max_length=200)]] | None,
    Body(max_length=4096, description="Names or ids; by default all nodes that are alive."),
]
Bandwidth = Annotated[bool, Body(description="Measure an all-reduce between each two nodes, too.")]


@router.post("/preflight", status_code=202)
def ask(service: TheService, nodes: Nodes = None, bandwidth: Bandwidth = False) -> Response:
    """Ask nodes whether they can train together; the answers come within seconds."""
    found = service.preflight_of(service.preflight(nodes, bandwidth))
    return answer(found, 202, {"Location": f"/api/preflight/{found.id}"})


@router.get("/preflight")
def list_preflights(service: TheService) -> Response:
    """What was asked for on demand, newest first."""
    return answer(service.preflights())


@router.get("/preflight/{check_id}")
def show(service: TheService, check_id: int) -> Response:
    """One preflight, as far as it got."""
    return answer(service.preflight_of(check_id))
