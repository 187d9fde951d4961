"""Runs: list, launch, look at, stop, resume, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer, document
from dashboard.planning import preview as previews
from dashboard.planning.fixes import launch_path, remedy_of, with_next_step
from db.queries import run_queries
from db.reports import findings as db_findings
from db.reports import ranks as db_ranks
from domain.messages import State
from domain.spec import RunSpec
from domain.spec_size import check_size

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
States = Annotated[list[State] | None, Query(description="Only runs in these states.")]
Like = Annotated[
    str | None,
    Query(max_length=100, description="The run whose values a masked value (`********`) stands for."),
]


@router.get("/runs")
def list_runs(
    service: TheService,
    state: States = None,
    q: Annotated[str | None, Query(max_length=500, description="Text to look for.")] = None,
    project: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """All runs, newest first."""
    found = run_queries.runs(service.store, service.now_for_contact(), state, q, project, limit)
    return answer([with_next_step(run) for run in found])


@router.post("/runs", status_code=201)
def launch(service: TheService, request: Request, spec: RunSpec, like: Like = None) -> Response:
    """Launch a run."""
    run = service.submit(spec, like)
    url = f"{request.base_url}run?id={run.id}"
    about = {"id": run.id, "name": run.name, "state": run.state, "url": url}
    return answer(about, 201, {"Location": f"/api/runs/{run.id}"})


@router.post("/preview")
def preview(
    service: TheService,
    spec: RunSpec,
    brought: Annotated[bool, Query(description="The code would be sent; do not look for it here.")] = False,
) -> Response:
    """What a run would be: its figures and the command of every node. Nothing is cloned or packed."""
    check_size(spec)
    return answer(previews.preview(spec, service.nodes(), brought))


@router.get("/runs/{run_id}")
def show(service: TheService, request: Request, run_id: str) -> Response:
    """One run, whole; `remedy` is what it can be launched with after a failure or once its loss is no
    number, and where that form is."""
    run = service.run(run_id)
    found = remedy_of(run, run_queries.checkpoints(service.store, run_id))
    address = str(request.base_url).rstrip("/")
    offered = {"label": found.label, "url": address + launch_path(run.id)} if found and found.spec else None
    return answer(document(run) | {"remedy": offered})


@router.post("/runs/{run_id}/stop")
def stop(service: TheService, run_id: str) -> Response:
    """Ask a run to end; asking twice changes nothing."""
    return answer(service.stop(run_id))


@router.post("/runs/{run_id}/resume")
def resume(
    service: TheService, run_id: str, checkpoint: Annotated[str | None, Body(embed=True)] = None
) -> Response:
    """Open a new attempt of an ended run, from its latest complete checkpoint or the one that is named."""
    return answer(service.resume(run_id, checkpoint))


@router.delete("/runs/{run_id}")
def delete(service: TheService, run_id: str) -> Response:
    """Delete an ended run with all its files; answers with what it was."""
    return answer(service.delete(run_id))


@router.get("/runs/{run_id}/history")
def history(service: TheService, run_id: str) -> Response:
    """What happened when."""
    service.run(run_id)
    return answer(run_queries.history(service.store, run_id))


@router.get("/runs/{run_id}/findings")
def findings(
    service: TheService, run_id: str, attempt: Annotated[int | None, Query(ge=1)] = None
) -> Response:
    """What was seen to be wrong while it trained, also what is no longer so (`gone_at`)."""
    service.run(run_id)
    return answer(db_findings.findings(service.store, run_id, attempt))


@router.get("/runs/{run_id}/preflight")
def preflight(service: TheService, run_id: str) -> Response:
    """What its nodes found before they might start, cell by cell; null for a run on one node."""
    return answer(service.preflight_of_run(run_id))


@router.get("/runs/{run_id}/ranks")
def ranks(service: TheService, run_id: str) -> Response:
    """Every rank in figures: steps, step time, waiting for data, memory; as the probe saw it last."""
    return answer(db_ranks.ranks(service.store, run_id))


@router.post("/runs/{run_id}/stacks", status_code=202)
def ask_stacks(service: TheService, run_id: str) -> Response:
    """Ask every rank of a live run where it stands; the answers come within seconds."""
    return answer(service.ask_stacks(run_id), 202)


@router.get("/runs/{run_id}/stacks")
def stacks(service: TheService, run_id: str) -> Response:
    """The Python stack of every rank, innermost frame first, as it was when somebody last asked."""
    return answer(db_ranks.stacks(service.store, run_id))


@router.get("/runs/{run_id}/attempts")
def attempts(service: TheService, run_id: str) -> Response:
    """The attempts of a run, with the commands really started on each node."""
    service.run(run_id)
    return answer(run_queries.attempts(service.store, run_id))
