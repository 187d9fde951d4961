"""Work on checkpoints that a node does: ask for it, follow it, cancel it."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from domain.checkpoints.tasks import CheckpointTaskView, MergeFormat, TaskKind
from domain.requests.bounds import Count

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["checkpoints"])


class MergeRequest(BaseModel):
    """The form of the merged checkpoint."""

    model_config = ConfigDict(extra="forbid")

    format: MergeFormat = "safetensors"
    """`safetensors`: one file; `hf`: shards with an index, config and tokenizer, as `from_pretrained` loads them."""


@router.post("/checkpoints/{checkpoint_id}/merge", status_code=202)
def merge(service: TheService, checkpoint_id: int, merge_request: MergeRequest) -> Response:
    """Have a node merge a checkpoint into safetensors with plain names; an equal merge is shared, not repeated."""
    return _accepted(service.checkpoint_tasks.merge(checkpoint_id, merge_request.format))


@router.post("/checkpoints/{checkpoint_id}/show", status_code=202)
def show(service: TheService, checkpoint_id: int) -> Response:
    """Have a node read the shapes, dtypes, norms and NaN of a checkpoint's tensors, unless it has."""
    return _accepted(service.checkpoint_tasks.ask(TaskKind.SHOW, checkpoint_id))


class DiffRequest(BaseModel):
    """The checkpoint to compare with."""

    model_config = ConfigDict(extra="forbid")

    other: Count
    """The id of the later one, of this or another run: changes are those from the path's checkpoint to it."""


@router.post("/checkpoints/{checkpoint_id}/diff", status_code=202)
def diff(service: TheService, checkpoint_id: int, diff_request: DiffRequest) -> Response:
    """Have a node compare the tensors of two checkpoints, unless it has."""
    return _accepted(service.checkpoint_tasks.ask(TaskKind.DIFF, checkpoint_id, other_id=diff_request.other))


@router.get("/runs/{run_id}/checkpoint-tasks")
def list_tasks(service: TheService, run_id: str, kind: TaskKind | None = None) -> Response:
    """The latest work on a run's checkpoints, newest first, without results."""
    return answer(service.checkpoint_tasks.of_run(run_id, kind))


@router.get("/checkpoint-tasks/{task_id}")
def show_task(service: TheService, task_id: int) -> Response:
    """One task with its progress and, once it has succeeded, its result."""
    return answer(service.checkpoint_tasks.task(task_id))


@router.post("/checkpoint-tasks/{task_id}/cancel")
def cancel_task(service: TheService, task_id: int) -> Response:
    """End a task; what it wrote is deleted. One that has ended is left as it is."""
    return answer(service.checkpoint_tasks.cancel(task_id))


def _accepted(task: CheckpointTaskView) -> Response:
    return answer(task, 202, {"Location": f"/api/checkpoint-tasks/{task.id}"})
