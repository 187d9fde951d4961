"""Preflights: whether nodes can train together, cell by cell."""

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
    Body(max_length=4096, description="Names or ids; by default all nodes that are online."),
]
Bandwidth = Annotated[bool, Body(description="Also measure an all-reduce between each pair of nodes.")]


@router.post("/preflight", status_code=202)
def ask(service: TheService, nodes: Nodes = None, bandwidth: Bandwidth = False) -> Response:
    """Ask nodes whether they can train together; they answer within seconds."""
    check = service.preflights.one(service.preflights.ask(nodes, bandwidth))
    return answer(check, 202, {"Location": f"/api/preflight/{check.id}"})


@router.get("/preflight")
def list_preflights(service: TheService) -> Response:
    """The preflights that people asked for, newest first."""
    return answer(service.preflights.all())


@router.get("/preflight/{check_id}")
def show(service: TheService, check_id: int) -> Response:
    """One preflight with the answers so far."""
    return answer(service.preflights.one(check_id))
