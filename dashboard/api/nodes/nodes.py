"""Nodes and their devices."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["nodes"])


@router.get("/nodes")
def list_nodes(service: TheService) -> Response:
    """Every node that ever joined, with what runs on it."""
    return answer(service.nodes())


@router.post("/nodes/{node}/drain")
def drain(service: TheService, node: str) -> Response:
    """Start nothing new on a node, by its name or id; its runs continue."""
    return answer(service.drain(node))


@router.post("/nodes/{node}/undrain")
def undrain(service: TheService, node: str) -> Response:
    """Let a node take new runs again."""
    return answer(service.undrain(node))


@router.post("/nodes/{node}/end-unknown")
def end_unknown(service: TheService, node: str, run: Annotated[str, Body(embed=True, max_length=100)]) -> Response:
    """Have a node end a run that this store does not know because an older copy was restored."""
    node_id = service.end_unknown(node, run)
    service.hub.desired_state_changed({node_id})
    return answer(next(view for view in service.nodes() if view.id == node_id))


@router.delete("/nodes/{node}")
def remove(service: TheService, node: str) -> Response:
    """Remove a node from the cluster, by its name or id: its worker ends, its runs stay readable."""
    return answer({"name": service.remove_node(node)})
