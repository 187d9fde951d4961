"""The difference between two runs: their specifications and their code."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.compare import runs
from dashboard.json_responses import answer
from dashboard.service.service import Service
from dashboard.snapshots.differences import FileChange

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])


@router.get("/runs/{run_id}/diff")
async def diff(
    service: TheService,
    request: Request,
    run_id: str,
    other: Annotated[str, Query(alias="with", max_length=100, description="The run on the `+` side.")],
) -> Response:
    """From one run to another: `spec` in rows, `code` as files and one unified diff.

    `same_code` is null when the code of one of them was not stored; `code.note` says so."""
    state = request.app.state
    if not hasattr(state, "comparing"):  # of this event loop
        state.comparing = CapacityLimiter(1)
    find = partial(_difference, service, run_id, other)
    return answer(await anyio.to_thread.run_sync(find, limiter=state.comparing))


def _difference(service: Service, run_id: str, other_id: str) -> dict[str, Any]:
    old, new = service.run(run_id), service.run(other_id)
    comparison = runs.code(service, old, new)
    code = {
        "files": [_file(file) for file in comparison.difference.files],
        "diff": comparison.difference.diff,
        "truncated": comparison.difference.truncated,
        "note": comparison.note,
    }
    return {"spec": runs.setting_changes(service.store, old, new), "code": code, "same_code": comparison.same}


def _file(file: FileChange) -> dict[str, Any]:
    return {
        "name": file.name,
        "kind": file.kind,
        "old_name": file.old_name,
        "old_size_bytes": file.old_size_bytes,
        "new_size_bytes": file.new_size_bytes,
        "lines_added": file.lines_added,
        "lines_removed": file.lines_removed,
        "omitted": file.omitted,
    }
