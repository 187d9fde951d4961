"""The dashboard itself: its health, its version and recipes, and a backup of its store."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from dashboard.planning import preview
from dashboard.storage.backups import BackupName, backup_name, write_backup

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


class BackupRequest(BaseModel):
    """A backup to be made."""

    model_config = ConfigDict(extra="forbid")

    name: BackupName | None = None
    """By default the time of the backup."""


@router.post("/backup")
def backup(service: TheService, requested: BackupRequest | None = None) -> Response:
    """Write a consistent copy of the store to a new file of the folder `backups` in the server's data directory.

    Raises Rejection when the file exists."""
    name = (requested and requested.name) or backup_name(service.clock())
    target, size_bytes = write_backup(service.store, service.settings.data, name)
    return answer({"path": str(target), "size_bytes": size_bytes})
