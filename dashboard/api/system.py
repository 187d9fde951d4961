"""The dashboard itself: its health, its version and recipes, and a backup of its store."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.planning import preview

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["system"])


@router.get("/health", include_in_schema=True)
@router.head("/health", include_in_schema=False)
async def health() -> Response:
    """Whether the dashboard is up; it says nothing else, because this route needs no token."""
    return answer({"status": "ok"})


@router.get("/info")
def info(service: TheService) -> Response:
    """The version, the included recipes with their options, and the size limit of a code snapshot."""
    content = {"version": version("rankzero"), "recipes": preview.recipes()}
    return answer(content | {"snapshot_limit_bytes": service.snapshots.limit_bytes})


@router.post("/backup")
def backup(service: TheService, path: Annotated[str, Body(embed=True, max_length=4096)]) -> Response:
    """Write a consistent copy of the store to a new file on the server's machine.

    Raises Rejection when the path is not absolute or not a new file in an existing folder."""
    target = Path(path)
    if not target.is_absolute() or "\0" in path:
        raise Rejection(422, "path must be absolute.", "path")
    if target.exists() or not target.parent.is_dir():
        raise Rejection(422, f"path must be a new file in an existing folder, got {path!r}.", "path")
    size_bytes = service.store.backup(target)
    return answer({"path": str(target), "size_bytes": size_bytes})
