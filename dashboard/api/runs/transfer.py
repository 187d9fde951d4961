"""Runs out of and into this installation: exports, archives, imports, and links for readers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.api.audit import write_down_download
from dashboard.api.context import CheckpointThreads, TheService, Threads
from dashboard.api.reading import JsonRoute
from dashboard.api.request_body import write_body
from dashboard.api.runs.compare import RunIds
from dashboard.archives.importing import import_archive
from dashboard.archives.writing import archive
from dashboard.cluster.joining import url_for_links
from dashboard.exports.report import report
from dashboard.exports.series_files import csv_file, json_file, parquet_file
from dashboard.exports.shared_pages import SharedPages
from dashboard.json_responses import answer, document
from dashboard.security.header_values import NO_STORE
from dashboard.security.proxies import shown_url
from dashboard.service import imports
from dashboard.service.service import Service
from dashboard.storage.downloads import content_disposition
from db.exceptions import NoSuchRun
from db.people.ownership import ObjectKind
from db.runs import shared_links
from db.runs.compared_runs import compared_runs
from db.runs.imported_runs import Import
from db.runs.shared_links import DEFAULT_DAYS
from domain.choices import RUN_ID, ExportFormat
from domain.imported_runs import ImportedPoints, ImportRequest
from domain.people.references import Named, Reference
from domain.people.roles import Action

router = APIRouter(route_class=JsonRoute, tags=["transfer"])
MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
    ExportFormat.JSON: "application/json",
    ExportFormat.HTML: "text/html; charset=utf-8",
    ExportFormat.ARCHIVE: "application/zip",
}


@router.get("/api/export")
@router.head("/api/export", include_in_schema=False)
def export(
    request: Request,
    service: TheService,
    runs: RunIds,
    format: Annotated[ExportFormat, Query(description="The kind of file.")],
    checkpoints: Annotated[bool, Query(description="Whether an archive holds them.")] = True,
) -> Response:
    """Return runs as one file, made while it is sent: a connection that breaks is the only sign of a half file.

    `csv`, `parquet` and `json` hold every stored point of all series: run, series, source, attempt, step, value and
    wall time; `html` is a report with curves and tables; `archive` is a zip file with everything of runs that have
    ended, for another installation. Raises Rejection, NoSuchRun, WrongState."""
    present = compared_runs(service.store, runs)
    if missing := next((run_id for run_id in runs if run_id not in present), None):
        raise NoSuchRun(f"There is no run {missing!r}.")
    headers = {"Content-Disposition": content_disposition(file_name(runs, format))}
    content = _content(service, runs, format, checkpoints)
    if request.method == "HEAD":
        return Response(media_type=MEDIA_TYPES[format], headers=headers)
    for run_id in runs:
        write_down_download(request, service, f"{format} of run {run_id}", ObjectKind.RUN, run_id)
    return StreamingResponse(content, media_type=MEDIA_TYPES[format], headers=headers)


def file_name(runs: Sequence[str], format: ExportFormat) -> str:
    """Return the name under which a browser stores the file."""
    subject = runs[0] if len(runs) == 1 else f"{len(runs)}-runs"
    return f"rankzero-{subject}{format.suffix}"


def _content(service: Service, runs: Sequence[str], format: ExportFormat, with_checkpoints: bool) -> Iterator[bytes]:
    match format:
        case ExportFormat.CSV:
            return csv_file(service.store, runs)
        case ExportFormat.PARQUET:
            return parquet_file(service.store, runs)
        case ExportFormat.JSON:
            return json_file(service.store, runs)
        case ExportFormat.HTML:
            return iter([report(service, runs)])
        case ExportFormat.ARCHIVE:
            return archive(service, runs, with_checkpoints)


# Archives of runs from other installations.


@router.post("/api/archives", status_code=201)
async def receive(
    request: Request,
    service: TheService,
    threads: CheckpointThreads,
    source: Annotated[str, Query(max_length=4096, description="The machine and path of the archive.")] = "",
) -> Response:
    """Import the runs of an archive, which is the body: `[{"id", "name", "series", "points", "is_new"}]`.

    Names, sizes and digests are checked first, and nothing in it is executed. Raises Rejection, InvalidRequest,
    WrongState."""
    with tempfile.TemporaryDirectory(prefix="archive", dir=service.files.incoming) as folder:
        path, unpacked = Path(folder) / "archive.zip", Path(folder) / "files"
        unpacked.mkdir()
        await write_body(request, threads, service.files, path)
        imported = await run_in_threadpool(import_archive, service, path, unpacked, source)
    return answer(imported, 201)


# Imports: runs that trained elsewhere, as `rankzero import` reads them.

POINTS_BODY = {"requestBody": {"content": {"application/json": {"schema": ImportedPoints.model_json_schema()}}}}


@router.post("/api/imports", status_code=201)
def begin(service: TheService, request: ImportRequest) -> Response:
    """Create an ended run without points, or find the one that was imported before (200): `points` of it are
    stored. If its source has changed since, its points are deleted, to be sent again."""
    begun = imports.begin(service, request)
    return answer(_document(begun), 201 if begun.is_new else 200)


@router.post("/api/imports/{run_id}/points", openapi_extra=POINTS_BODY)
async def add_points(service: TheService, request: Request, run_id: str) -> Response:
    """Store the next points of an imported run; 409 if `start` is not the number of its points so far."""
    threads: Threads = request.app.state.threads
    batch = ImportedPoints.model_validate_json(await request.body())
    return answer(_document(await threads.run(imports.add_points, service, run_id, batch)))


def _document(begun: Import) -> dict[str, Any]:
    return {
        "id": begun.run_id,
        "is_new": begun.is_new,
        "points": begun.points,
        "series": begun.series,
        "is_complete": begun.is_complete,
    }


# Read-only links to runs: make, list and revoke them, and what their visitors see.

HEADERS = {
    **NO_STORE,
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
}


class LinkRequest(BaseModel):
    """The runs that a new link shows, and for how long."""

    model_config = ConfigDict(extra="forbid")

    runs: list[Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$"), Reference(Named.RUN, Action.ACT)]]
    days: int = DEFAULT_DAYS


@router.get("/api/shared-links")
def list_links(service: TheService) -> Response:
    """The links, the newest first, without their secrets; ended ones for 30 days."""
    return answer(shared_links.every(service.store, service.clock()))


@router.post("/api/shared-links", status_code=201)
def make_link(service: TheService, request: Request, link_request: LinkRequest) -> Response:
    """Make a link that shows one run, or several side by side. Only this answer contains its `url`."""
    runs = list(dict.fromkeys(link_request.runs))
    link, token = shared_links.make(service.store, runs, link_request.days, service.clock())
    url = url_for_links(service.listening(), shown_url(request), service.settings.public_url)
    link_document = document(link) | {"url": f"{url}/shared/{token}"}
    return answer(link_document, 201, NO_STORE)


@router.delete("/api/shared-links/{link_id}")
def revoke_link(service: TheService, link_id: str) -> Response:
    """End a link at once."""
    return answer(shared_links.revoke(service.store, link_id, service.clock()))


@router.get("/shared/{token}", include_in_schema=False)
@router.head("/shared/{token}", include_in_schema=False)
async def shared(request: Request, token: str) -> Response:
    """The report of the link's runs, for anybody who has it. A thread of its own serves all visitors."""
    pages: SharedPages = request.app.state.shared_pages
    threads: Threads = request.app.state.shared_threads
    page = await threads.run(pages.page, token)
    # Browsers let no sandboxed page refresh itself but those that may run scripts; the policy allows none of them.
    policy = f"{page.policy}; frame-ancestors 'none'; sandbox allow-scripts"
    headers = HEADERS | {"Content-Security-Policy": policy}
    return Response(page.html, page.status, media_type="text/html", headers=headers)
