"""A run's series, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.api.audit import write_down_download
from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer, json_text
from db.metrics import curves, performance
from db.metrics.curves import to_json_number, to_json_points
from db.people.ownership import ObjectKind
from domain.messages import PointChoice
from domain.text.tables import without_formula
from domain.views import SeriesView

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["metrics"])
Names = Annotated[list[str] | None, Query(description="Only these series.")]
POINTS_A_PIECE = 5000
"""Long answers are written piece by piece, so that neither memory nor other requests suffer."""


@router.get("/runs/{run_id}/metrics")
def metrics(
    service: TheService,
    run_id: str,
    name: Names = None,
    since: Annotated[int | None, Query(description="Only points from this step on.")] = None,
    until: Annotated[int | None, Query(description="Only points up to this step.")] = None,
    source: PointChoice = "events",
    attempt: Annotated[int | None, Query(ge=1)] = None,
    max_points: Annotated[int | None, Query(ge=10, le=1_000_000)] = None,
    replaced: Annotated[bool, Query(description="Also points that newer ones replaced.")] = False,
) -> Response:
    """{"train/loss": [[step, value, wall time], …]}; NaN and the infinities are strings."""
    series = curves.series(service.store, run_id, name, source, attempt, since, max_points, replaced, until)
    return StreamingResponse(_json(series), media_type="application/json")


@router.get("/runs/{run_id}/hardware")
def hardware(
    service: TheService,
    run_id: str,
    node: Annotated[str | None, Query(description="Only this node: its name, or its rank in the run.")] = None,
    max_points: Annotated[int | None, Query(ge=10, le=1_000_000)] = None,
) -> Response:
    """Samples of the nodes' hardware: {"hardware/gpu0/power_w": [[step, value, wall time], …]}, as `metrics`."""
    names = performance.hardware_names(service.store, run_id, node)
    series = curves.series(service.store, run_id, names, "hardware", max_points=max_points)
    return StreamingResponse(_json(series), media_type="application/json")


@router.get("/runs/{run_id}/usage")
def run_usage(service: TheService, run_id: str) -> Response:
    """Device-hours of all attempts, and the energy that their devices measured: {"device_hours", "energy_j"}."""
    return answer(performance.usage(service.store, run_id, service.clock()))


@router.get("/runs/{run_id}/metrics.csv")
def metrics_csv(
    request: Request, service: TheService, run_id: str, name: Names = None, source: PointChoice = "events"
) -> Response:
    """One line per point: series, attempt, step, value, wall time."""
    series = curves.series(service.store, run_id, name, source)
    write_down_download(request, service, f"metrics of run {run_id}", ObjectKind.RUN, run_id)
    headers = {"Content-Disposition": f'attachment; filename="{run_id}-metrics.csv"'}
    return StreamingResponse(_csv(series), media_type="text/csv", headers=headers)


def _json(series: dict[str, SeriesView]) -> Iterator[str]:
    yield "{"
    for position, (name, view) in enumerate(series.items()):
        yield f"{',' if position else ''}{json_text(name)}:["
        points = view.points
        for start in range(0, len(points), POINTS_A_PIECE):
            piece = json_text(to_json_points(points[start : start + POINTS_A_PIECE]))
            yield f"{',' if start else ''}{piece[1:-1]}"
        yield "]"
    yield "}"


def _csv(series: dict[str, SeriesView]) -> Iterator[str]:
    yield "series,attempt,step,value,wall_time\r\n"
    for name, view in series.items():
        cell = without_formula(name.encode(errors="replace").decode())
        for segment in view.segments:
            for start in range(0, len(segment.points), POINTS_A_PIECE):
                text = io.StringIO()
                writer = csv.writer(text)
                for step, value, wall in segment.points[start : start + POINTS_A_PIECE]:
                    writer.writerow((cell, segment.attempt, step, to_json_number(value), wall))
                yield text.getvalue()
