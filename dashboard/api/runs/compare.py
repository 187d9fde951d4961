"""Several runs at once: what differs between them, and their curves as packed columns."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import anyio.to_thread
import numpy as np
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.compare import joined_series, runs
from dashboard.compare.document import comparison
from dashboard.errors import Rejection
from dashboard.json_responses import answer, json_text
from dashboard.service.service import Service
from dashboard.snapshots.differences import FileChange
from db.exceptions import NoSuchRun
from db.metrics.curves import RunCurve, StepRange, curves_of_runs, sources_of_runs
from db.people.visibility import visible_ids
from db.runs.compared_runs import attempt_batches, compared_runs
from db.runs.run_queries import common_baseline
from domain.choices import RUN_ID

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
MOST_RUNS = 1000
MOST_POINTS = 5000
NO_BASELINE = "none"


def chosen_runs(
    runs: Annotated[str, Query(max_length=12 * MOST_RUNS, description="Run ids, separated by commas.")],
) -> list[str]:
    """The ids in their order, each once. Raises Rejection, NoSuchRun."""
    ids = list(dict.fromkeys(filter(None, runs.split(","))))
    if not ids:
        raise Rejection(422, "Name at least one run: `runs=ID,ID`.", "runs")
    if odd := next((run_id for run_id in ids if not RUN_ID.fullmatch(run_id)), None):
        raise NoSuchRun(f"There is no run {odd!r}.")
    return ids


RunIds = Annotated[list[str], Depends(chosen_runs)]


def visible_runs(service: TheService, ids: RunIds) -> list[str]:
    """The chosen runs that the visitor sees: hidden runs are omitted."""
    return visible_ids(service.store, ids)


VisibleIds = Annotated[list[str], Depends(visible_runs)]


@router.get("/compare")
def compare(
    service: TheService,
    runs: RunIds,
    baseline: Annotated[
        str | None,
        Query(max_length=100, description="A run; without it that of the runs' project; `none`: no baseline."),
    ] = None,
    group: Annotated[list[str] | None, Query(description="Fields of `differences`.")] = None,
    skip_missing: Annotated[bool, Query(description="Leave out runs that do not exist.")] = False,
) -> Response:
    """Return only what differs between the runs, and the last, best, lowest and highest value of every logged series.

    `best` is the lowest value of series with loss, error or perplexity in their name, the highest of accuracy-like
    ones, and null for all others; `steps` is the step of the last point. With a baseline, which need not be one of
    the runs, each series' figures have their change to it in per cent. With `group`, runs that have the same values
    of these fields are one of `groups`, and each series has the mean, the spread (standard deviation) and the number
    of their last and best values.

    Raises Rejection, NoSuchRun."""
    named = baseline or common_baseline(service.store, runs) or NO_BASELINE
    run_ids = runs if named == NO_BASELINE else [*runs, named]
    compared = compared_runs(service.store, run_ids)
    missing = next((run_id for run_id in run_ids if run_id not in compared), None)
    if missing and not skip_missing:
        raise NoSuchRun(f"There is no run {missing!r}.")
    ordered = [compared[run_id] for run_id in runs if run_id in compared]
    return answer(comparison(service.store, service.files, ordered, compared.get(named), group or ()))


@router.get("/compare/names")
def names(service: TheService, runs: VisibleIds) -> Response:
    """The source of each series by name, for each run: {run id: {"train/loss": "events"}}."""
    return answer(sources_of_runs(service.store, runs))


@router.get("/compare/joined")
def joined(service: TheService, runs: VisibleIds) -> Response:
    """The name of a series in charts with other runs that log the same figure: {run id: {"printed/loss": "loss"}}."""
    return answer(joined_series.joined(service.store, runs))


@router.get("/compare/batches")
def batches(service: TheService, runs: VisibleIds) -> Response:
    """The batch and the first logged step of each attempt: {run id: [{"attempt", "global_batch", "first_step"}]}.

    The batch is null where the script sets its own; an attempt on fewer nodes may have another than the run."""
    by_run = attempt_batches(service.store, runs)
    return answer({run_id: [row._asdict() for row in rows] for run_id, rows in by_run.items()})


@router.get("/compare/curves")
def curves(
    service: TheService,
    runs: VisibleIds,
    name: Annotated[list[str], Query(description="Only these series.")],
    max_points: Annotated[int, Query(ge=10, le=MOST_POINTS, description="Of each run.")] = 500,
    since: Annotated[int | None, Query(description="Only points from this step on.")] = None,
    until: Annotated[int | None, Query(description="Only points up to this step.")] = None,
) -> Response:
    """Curves of all runs as binary columns, which a browser takes over as they are.

    First a 64-bit little-endian length, then as many bytes of JSON padded with spaces to a multiple of eight:
    [{"run", "name", "source", "attempt", "count", "not_finite_since"}]; then, in the same order, the steps, the
    values and the wall times of each as little-endian 64-bit floats."""
    drawn = curves_of_runs(service.store, runs, name, max_points, StepRange(since, until))
    return Response(packed(drawn), media_type="application/octet-stream")


def packed(drawn: list[RunCurve]) -> bytes:
    """The body of `curves`."""
    head = json_text([_head(curve) for curve in drawn]).encode()
    head += b" " * (-len(head) % 8)
    columns = (np.ascontiguousarray(curve.columns, dtype="<f8").tobytes() for curve in drawn)
    return b"".join([len(head).to_bytes(8, "little"), head, *columns])


def _head(curve: RunCurve) -> dict[str, object]:
    return {
        "run": curve.run_id,
        "name": curve.name,
        "source": curve.source,
        "attempt": curve.attempt,
        "count": curve.columns.shape[1],
        "not_finite_since": curve.not_finite_since,
    }


# The difference between two runs: their specifications and their code.


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
