"""Profiles of a run's ranks: their requests, overviews, flame graphs and traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Body
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.api.audit import write_down_download
from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from dashboard.service.service import Service
from db.people.ownership import ObjectKind
from db.ranks import profiles as db_profiles
from domain.assignments import MAX_RANKS, MAX_STEPS

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
PIECE_BYTES = 256 * 1024


@router.post("/runs/{run_id}/profiles", status_code=202)
def ask_profile(
    service: TheService,
    run_id: str,
    steps: Annotated[int, Body(embed=True, ge=1, le=MAX_STEPS)] = 10,
    ranks: Annotated[list[int], Body(embed=True, max_length=MAX_RANKS)] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """Ask ranks of a live run, by default the first ones, to record the same steps; traces arrive within seconds.

    `cost` says what that costs, by an earlier profile."""
    earlier = db_profiles.profiles(service.store, run_id, service.clock())
    requested = service.request_profile(run_id, steps, ranks)
    cost = service.profile_cost(run_id, earlier, len(requested.ranks))
    return answer(asdict(requested) | {"cost": cost}, 202)


@router.get("/runs/{run_id}/profiles")
def profiles(service: TheService, run_id: str) -> Response:
    """The profiles of a run, oldest first, each with the overview of every rank."""
    return answer(db_profiles.profiles(service.store, run_id, service.clock()))


@router.get("/runs/{run_id}/profiles/{profile_id}")
def profile(service: TheService, run_id: str, profile_id: str) -> Response:
    """One profile with the overview of every rank."""
    return answer(db_profiles.profile(service.store, run_id, profile_id, service.clock()))


@router.get("/runs/{run_id}/profiles/{profile_id}/ranks/{rank}/flame")
def flame(service: TheService, run_id: str, profile_id: str, rank: int) -> Response:
    """The rank's flame graph: [[depth, name, seconds], …], each function followed by those that it calls."""
    return answer(db_profiles.flame(service.store, run_id, profile_id, rank))


@router.get("/runs/{run_id}/profiles/{profile_id}/ranks/{rank}/trace")
def trace(request: Request, service: TheService, run_id: str, profile_id: str, rank: int) -> Response:
    """The rank's trace in Chrome's format, packed with gzip."""
    file_id, size_bytes = db_profiles.trace_file(service.store, run_id, profile_id, rank)
    name = f"{run_id}-{profile_id}-rank{rank}.json.gz"
    write_down_download(request, service, f"trace of rank {rank} of run {run_id}", ObjectKind.RUN, run_id)
    headers = {"Content-Length": str(size_bytes), "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_pieces(service, file_id, size_bytes), media_type="application/gzip", headers=headers)


def _pieces(service: Service, file_id: int, size_bytes: int) -> Iterator[bytes]:
    for start in range(0, size_bytes, PIECE_BYTES):
        yield service.files.read(file_id, start, min(PIECE_BYTES, size_bytes - start))
