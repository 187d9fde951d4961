"""The dashboard itself: its health, its version and recipes, and a backup of its store."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
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
from dashboard.private_files import make_private_directory
from db.people import audit
from domain.people.audit import AuditAction

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
def backup(service: TheService, path: Annotated[str | None, Body(embed=True, max_length=4096)] = None) -> Response:
    """Write a consistent copy of the store to a new file below the server's data folder, by default in `backups/`.

    Raises Rejection for any other place, and when the file exists or its folder does not."""
    data = service.settings.data.resolve()
    target = _new_backup(data, service.clock()) if path is None else _below(data, path)
    size_bytes = service.store.backup(target)
    audit.record(service.store, AuditAction.BACKUP, target.name)
    return answer({"path": str(target), "size_bytes": size_bytes})


def _new_backup(data: Path, now: float) -> Path:
    folder = data / "backups"
    make_private_directory(folder)
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    return folder / f"rankzero-{moment}-{secrets.token_hex(3)}.db"


def _below(data: Path, path: str) -> Path:
    """Return the new file that `path`, relative to the data folder or absolute, is. Raises Rejection."""
    if "\0" in path:
        raise Rejection(422, "path must not contain a NUL character.", "path")
    target = data / path
    folder = target.parent.resolve()  # whatever links and `..` are in it
    if not folder.is_relative_to(data):
        raise Rejection(
            422,
            f"path must be below the server's data folder, got {path[:300]!r}: leave it out, then copy the file.",
            "path",
        )
    if not folder.is_dir() or target.name in ("", "..") or os.path.lexists(folder / target.name):
        raise Rejection(422, f"path must be a new file in an existing folder, got {path[:300]!r}.", "path")
    return folder / target.name
