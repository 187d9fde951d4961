"""Work on checkpoints that a node does: ask for it, follow it, cancel it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from dashboard.pushes import asking
from domain.checkpoint_use.tasks import CheckpointTaskView, MergeFormat, TaskKind
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


class PushRequest(BaseModel):
    """Where a checkpoint goes, and by which secrets."""

    model_config = ConfigDict(extra="forbid")

    to: Annotated[str, Field(max_length=700)]
    """`hf:ORG/NAME` or `s3://BUCKET/PREFIX`."""
    public: bool = False
    """Create a public repository, or push to one."""
    secrets: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=10)] = []
    """CREDENTIAL=SECRET where a stored secret has another name than its credential: HF_TOKEN=LAB_TOKEN."""
    as_saved: bool = False
    """Push what the training saved, in place of its merged form."""


@router.post("/checkpoints/{checkpoint_id}/push", status_code=202)
def push(service: TheService, checkpoint_id: int, push_request: PushRequest) -> Response:
    """Have a node push a checkpoint to the Hugging Face Hub or into a bucket; private unless it is to be public."""
    asked = push_request
    task = asking.ask(
        service, checkpoint_id, asked.to, is_public=asked.public, secrets=asked.secrets, as_saved=asked.as_saved
    )
    return _accepted(task)


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
