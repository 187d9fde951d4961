"""The audit log: its entries for those who may read them, and downloads that are written down there."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from dashboard.security.header_values import NO_STORE
from dashboard.service.service import Service
from db.people import audit
from db.people.audit import AuditFilter
from db.people.ownership import ObjectKind
from domain.people.audit import AuditAction

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["people"])
MOST = 2**53
DEFAULT_LIMIT = 200
By = Annotated[str | None, Query(max_length=100, description="Only what this person did.")]
Since = Annotated[float | None, Query(ge=0, description="Only what was done since: seconds since the epoch.")]
Done = Annotated[AuditAction | None, Query(description="Only this action.")]
Project = Annotated[str | None, Query(max_length=500, description="Only what belongs to this project.")]
Before = Annotated[int | None, Query(ge=0, le=MOST, description="Only entries older than the one with this `id`.")]


@router.get("/audit")
def entries(
    service: TheService,
    since: Since = None,
    by: By = None,
    action: Done = None,
    project: Project = None,
    before: Before = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = DEFAULT_LIMIT,
) -> Response:
    """The newest entries of the audit log, newest first: who did what to which object, when and from where.

    Admins see what belongs to no project and to those that are not hidden from them; an admin of single projects
    what belongs to these."""
    return answer(audit.entries(service.store, AuditFilter(by, action, since, project, before), limit))


@router.get("/audit.jsonl")
def export(
    service: TheService, since: Since = None, by: By = None, action: Done = None, project: Project = None
) -> Response:
    """All entries, newest first, as JSON lines. The export is an entry, too."""
    entries = audit.all_entries(service.store, AuditFilter(by, action, since, project))
    lines = (entry.model_dump_json() + "\n" for entry in entries)
    first = next(lines, "")  # who may read nothing is refused before the answer begins
    audit.record_download(service.store, "audit log")
    headers = {"Content-Disposition": 'attachment; filename="rankzero-audit.jsonl"', **NO_STORE}
    return StreamingResponse(chain([first], lines), media_type="application/x-ndjson", headers=headers)


def write_down_download(request: Request, service: Service, object_name: str, kind: ObjectKind, object_id: str) -> None:
    """Write a download into the audit log; one that resumes at a later byte is in it already."""
    if request.method != "GET":
        return
    byte_range = request.headers.get("range", "bytes=0-").replace(" ", "")
    is_resumed = not byte_range.startswith("bytes=0-")
    audit.record_download(service.store, object_name, (kind, object_id), is_resumed=is_resumed)
