"""Runs: list, launch, show, stop, resume and delete them, and restore deleted ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Body, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import MOST, JsonRoute
from dashboard.api.runs.searches import Search, SortText, parsed, parsed_sort
from dashboard.compare import resuming
from dashboard.errors import Rejection
from dashboard.json_responses import answer, document
from dashboard.logs.logged_settings import logged_settings
from dashboard.planning import preview as previews
from dashboard.planning.fixes import fix_of, launch_path, with_next_step
from dashboard.planning.resolve import resolve
from dashboard.security.proxies import shown_url
from dashboard.service.best_columns import best_columns, best_values
from dashboard.service.service import Service
from dashboard.studies.sweep_request import SeedsRequest, launch_with_seeds
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_queries
from db.findings import findings as db_findings
from db.people.permission import deleted_run
from db.ranks import ranks as db_collectives
from db.ranks import ranks as db_ranks
from db.runs import run_list, run_queries
from db.runs.expected_times import expected_time
from db.runs.run_list import RunSelection
from db.runs.run_queries import named_runs
from domain.messages import State
from domain.spec import RunEdit, RunSpec, check_size

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
States = Annotated[list[State] | None, Query(description="Only runs in these states.")]
Like = Annotated[
    str | None,
    Query(max_length=100, description="The run whose values a masked value (`********`) stands for."),
]

CheckpointName = Annotated[str | None, Query(max_length=1100, description="By default the latest complete one.")]


@router.get("/runs")
def list_runs(
    service: TheService,
    state: States = None,
    q: Annotated[str | None, Query(max_length=500, description="Text to look for.")] = None,
    project: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    search: Search = "",
    sort: SortText = "",
    offset: Annotated[int, Query(ge=0, le=MOST, description="Runs to leave out at the beginning.")] = 0,
) -> Response:
    """Runs that are not archived, newest first or sorted; a search for `archived:yes` lists the others.

    Where a search or the order names series, or one project is listed, `metrics` of each run has their best values,
    such as `best:val/loss`."""
    now = service.now_for_contact()
    query, order = parsed(search, now), parsed_sort(sort)
    selection = RunSelection(query, q or "", state or (), project or "")
    views = run_list.listed(service.store, now, selection, order, limit, offset)
    if not (columns := best_columns(service.store, query, project, order)):
        return answer([with_next_step(run) for run in views])
    metrics = best_values(service.store, now, views, columns)
    return answer([document(with_next_step(run)) | {"metrics": metrics[run.id]} for run in views])


@router.get("/named-runs")
def named_run(service: TheService, name: Annotated[str, Query(max_length=200)]) -> Response:
    """The one run that `name` means: an id, `latest`, a name, or the beginning of an id. Raises Rejection."""
    runs = named_runs(service.store, name)
    if not runs:
        raise Rejection(404, _absent(service, name), "run")
    if len(runs) > 1:
        ids = ", ".join(run.id if run.name == name else f"{run.id} ({run.name})" for run in runs[:5])
        more = f" and {len(runs) - 5} more" if len(runs) > 5 else ""
        raise Rejection(409, f"{name!r} means several runs, newest first: {ids}{more}. Name one by its id.", "run")
    return answer(runs[0]._asdict())


def _absent(service: Service, name: str) -> str:
    deleted = [run for run in service.deletions.deleted() if name in (run.id, run.name)]
    if deleted:
        return deleted_run(deleted[0].id, deleted[0].deleted_by)
    return f"There is no run {name!r}; `rankzero runs` lists them."


@router.post("/runs", status_code=201)
def launch(service: TheService, request: Request, spec: RunSpec, like: Like = None) -> Response:
    """Launch a run."""
    run_id = service.launch(spec, like)
    return answer(_summary(service, request, run_id), 201, {"Location": f"/api/runs/{run_id}"})


def _summary(service: Service, request: Request, run_id: str) -> dict[str, object]:
    name, state = run_queries.name_and_state(service.store, run_id)
    return {"id": run_id, "name": name, "state": state, "url": f"{shown_url(request)}/run?id={run_id}"}


@router.post("/runs/seeds", status_code=201)
def launch_seeds(service: TheService, request: Request, seeds_request: SeedsRequest, like: Like = None) -> Response:
    """Launch a run for each seed; `url` compares them: their mean and its spread."""
    ids = launch_with_seeds(service, seeds_request.spec, seeds_request.seeds, like=like)
    runs = [_summary(service, request, run_id) for run_id in ids]
    return answer({"runs": runs, "url": f"{shown_url(request)}/compare?runs={','.join(ids)}&group=all"}, 201)


@router.post("/preview")
def preview(
    service: TheService,
    spec: RunSpec,
    code_is_sent: Annotated[bool, Query(description="The code would be sent; do not look for it here.")] = False,
) -> Response:
    """The figures of a launch and the command of every node. Nothing is cloned or packed.

    `expected` is how long it takes, by earlier runs of the same code; null where none tells. `resume` is there for a
    launch that resumes: as `GET /api/runs/{run_id}/resume`."""
    problem = service.references.problem(spec)
    check_size(spec)
    resolved = resolve(spec, service.cluster())
    plan = None if problem else resuming.plan_of_launch(service.store, resolved.spec)
    expected = expected_time(service.store, resolved.spec)
    shown = document(previews.preview(resolved, code_is_sent, problem)) | {"expected": document(expected)}
    return answer(shown | {"resume": document(plan)} if plan else shown)


@router.get("/runs/{run_id}")
def show(service: TheService, request: Request, run_id: str) -> Response:
    """One run in full. `fix` is the label and the form's URL of a corrected launch, after a failure or once
    the loss is not a number; null otherwise. `environment` is that of its lock on the nodes; null without one."""
    run = service.run(run_id)
    fix = fix_of(run, checkpoint_queries.checkpoints(service.store, run_id))
    fix_document = {"label": fix.label, "url": shown_url(request) + launch_path(run.id)} if fix and fix.spec else None
    environment = attempt_queries.environment_of(service.store, run_id)
    return answer(document(run) | {"fix": fix_document, "environment": environment})


@router.patch("/runs/{run_id}")
def edit(service: TheService, run_id: str, change: RunEdit) -> Response:
    """Rename a run, move it to a project, or change its tags, note, pin or archiving; returns the run."""
    return answer(service.edit(run_id, change))


@router.post("/runs/{run_id}/stop")
def stop(service: TheService, run_id: str, reason: Annotated[str | None, Body(embed=True)] = None) -> Response:
    """Ask a run to end; asking twice changes nothing. `reason` appears in its history and message, and its owner is
    notified of it, with who stopped it."""
    return answer(service.stop(run_id, reason=reason))


@router.post("/runs/{run_id}/resume")
def resume(service: TheService, run_id: str, checkpoint: Annotated[str | None, Body(embed=True)] = None) -> Response:
    """Open a new attempt of an ended run, from its latest complete checkpoint or the named one."""
    return answer(service.resume(run_id, checkpoint))


@router.get("/runs/{run_id}/resume")
def resume_plan(service: TheService, run_id: str, checkpoint: CheckpointName = None) -> Response:
    """Compare a resume with when its checkpoint was written, and say what the checkpoint holds and lacks.

    `is_read` false: its node has not read what it holds. `why`: why it is not `possible`."""
    plan = resuming.plan_of_resume(service.store, run_id, checkpoint)
    return answer(resuming.unless_live(plan, service.run(run_id)))


AtOnce = Annotated[bool, Query(description="Free the disk at once; cannot be undone. Needs the role admin.")]


@router.delete("/runs/{run_id}")
def delete(service: TheService, run_id: str, now: AtOnce = False) -> Response:
    """Delete an ended run; returns its last view, `freed_bytes`: what its files take, and `kept_until`: until then
    it can be restored, and the bytes are free from then on; null where it is gone for good."""
    run = service.run(run_id)
    return answer(document(run) | service.delete(run_id, now)._asdict())


@router.get("/deleted-runs")
def deleted_runs(service: TheService) -> Response:
    """The deleted runs of your projects, with who deleted them, whether you may restore them, and until when."""
    deletions = service.deletions
    return answer([document(run) | {"kept_until": deletions.kept_until(run)} for run in deletions.deleted()])


@router.delete("/deleted-runs/{deleted_id}")
def erase(service: TheService, deleted_id: str) -> Response:
    """Delete a deleted run for good before its time; returns `freed_bytes`."""
    return answer({"id": deleted_id} | service.deletions.erase(deleted_id)._asdict())


@router.post("/runs/{run_id}/restore")
def restore(service: TheService, run_id: str) -> Response:
    """Restore a deleted run as it was: your own, or as an admin of its project; returns it."""
    return answer(service.restore(run_id))


@router.get("/runs/{run_id}/history")
def history(service: TheService, run_id: str) -> Response:
    """The run's events, in order."""
    return answer(run_queries.history(service.store, run_id))


@router.get("/runs/{run_id}/findings")
def findings(service: TheService, run_id: str, attempt: Annotated[int | None, Query(ge=1)] = None) -> Response:
    """Problems noticed while the run trained, including those that are over (`gone_at`)."""
    return answer(db_findings.findings(service.store, run_id, attempt))


@router.get("/runs/{run_id}/collectives")
def collectives(service: TheService, run_id: str) -> Response:
    """Where each rank stood in its collectives when it was asked last, and where the ranks disagree."""
    return answer(db_collectives.collectives(service.store, run_id))


@router.get("/runs/{run_id}/preflight")
def preflight(service: TheService, run_id: str) -> Response:
    """The results of the preflight before the run's start, cell by cell; null for a run on one node."""
    return answer(service.preflights.of_run(run_id))


@router.get("/runs/{run_id}/timeline")
def timeline(service: TheService, run_id: str) -> Response:
    """The phases of the start on each node: [{"node", "phase", "started_at", "seconds"}], the last one in progress.

    A phase about which there is something to say has a "note"."""
    phases = map(asdict, attempt_queries.timeline(service.store, run_id, service.clock()))
    hidden = {"is_in_progress"}
    return answer([{k: value for k, value in phase.items() if value != "" and k not in hidden} for phase in phases])


@router.get("/runs/{run_id}/ranks")
def ranks(service: TheService, run_id: str) -> Response:
    """Figures of every rank: steps, step time, time waiting for data, memory; as the probe last saw them."""
    return answer(db_ranks.ranks(service.store, run_id))


@router.post("/runs/{run_id}/stacks", status_code=202)
def ask_stacks(service: TheService, run_id: str) -> Response:
    """Ask every rank of a live run for its stack; the answers arrive within seconds."""
    return answer(service.ask_stacks(run_id), 202)


@router.get("/runs/{run_id}/stacks")
def stacks(service: TheService, run_id: str) -> Response:
    """The Python stack of every rank, innermost frame first, as of the last request."""
    return answer(db_ranks.stacks(service.store, run_id))


@router.get("/runs/{run_id}/attempts")
def attempts(service: TheService, run_id: str) -> Response:
    """The attempts of a run, with the commands started on each node."""
    return answer(attempt_queries.attempts(service.store, run_id))


# What the script told its loggers about a run.


@router.get("/runs/{run_id}/loggers")
def loggers(
    service: TheService,
    run_id: str,
    attempt: Annotated[int | None, Query(ge=1, le=10**6, description="By default the latest.")] = None,
) -> Response:
    """Hyperparameters (`config`), tags, summary and mode of each logger that the script calls beside event files."""
    run = service.run(run_id)
    return answer(logged_settings(service, run_id, attempt or run.attempt))
