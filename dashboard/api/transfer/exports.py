"""Runs as files for other programs and installations, made while they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.api.runs.compare import RunIds
from dashboard.archives.writing import archive
from dashboard.exports.report import report
from dashboard.exports.series_files import csv_file, json_file, parquet_file
from dashboard.service.service import Service
from dashboard.storage.downloads import content_disposition
from db.exceptions import NoSuchRun
from db.runs.compared_runs import compared_runs
from domain.choices import ExportFormat

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])


MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
    ExportFormat.JSON: "application/json",
    ExportFormat.HTML: "text/html; charset=utf-8",
    ExportFormat.ARCHIVE: "application/zip",
}


@router.get("/export")
@router.head("/export", include_in_schema=False)
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
