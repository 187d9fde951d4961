"""Nodes and their devices."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.documents import answer

router = APIRouter(prefix="/api", tags=["nodes"])


@router.get("/nodes")
def list_nodes(service: TheService) -> Response:
    """Every node ever seen, with what runs on it."""
    return answer(service.nodes())
