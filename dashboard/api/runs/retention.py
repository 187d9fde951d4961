"""Checkpoints kept on purpose: retention rules, pins, and the bin of deleted checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer, document
from dashboard.service.service import Service
from db.checkpoints import checkpoint_queries
from domain.checkpoint_use.retention import LONGEST_RULE
from domain.checkpoint_use.retention_views import RunPlan, totals_of

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["checkpoints"])


class RuleRequest(BaseModel):
    """A retention rule to set; `dry_run` only says what it would delete."""

    model_config = ConfigDict(extra="forbid")

    rule: Annotated[str, Field(max_length=LONGEST_RULE)] | None = None
    """last 2, best 1 by val/loss, every 10,000 steps, pinned; or keep all. None removes the rule."""
    dry_run: bool = False


@router.get("/runs/{run_id}/retention")
def rule_of_run(service: TheService, run_id: str) -> Response:
    """The rule that holds for a run, where it was set (`of`), and each complete checkpoint with why it is kept."""
    view, plan = service.retention.of_run(run_id)
    return answer(document(view) | _planned(plan))


@router.put("/runs/{run_id}/retention")
def set_rule_of_run(service: TheService, run_id: str, request: RuleRequest) -> Response:
    """Set a run's own rule, which overrides that of its project; what it lets go is deleted in the next seconds."""
    plan = service.retention.plan_for_run(run_id, request.rule)
    if request.dry_run:
        return answer({"rule": plan.rule, "dry_run": True} | _planned(plan))
    return answer(document(service.retention.set_for_run(run_id, request.rule)) | _planned(plan))


@router.get("/projects/{project:path}/retention")
def rule_of_project(service: TheService, project: str) -> Response:
    """The rule of a project's runs that have none of their own."""
    return answer(service.retention.of_project(project))


@router.put("/projects/{project:path}/retention")
def set_rule_of_project(service: TheService, project: str, request: RuleRequest) -> Response:
    """Set or remove the rule of a project; the answer says what it deletes of its runs."""
    view, totals = service.retention.change_project(project, request.rule, is_dry_run=request.dry_run)
    return answer(document(view) | {"dry_run": request.dry_run} | document(totals))


@router.put("/checkpoints/{checkpoint_id}/pin")
def pin(service: TheService, checkpoint_id: int) -> Response:
    """Pin a checkpoint: no rule deletes it, and no person before it is unpinned."""
    return _checkpoint(service, service.retention.pin(checkpoint_id), checkpoint_id)


@router.delete("/checkpoints/{checkpoint_id}/pin")
def unpin(service: TheService, checkpoint_id: int) -> Response:
    """Leave a checkpoint to its run's rule again."""
    return _checkpoint(service, service.retention.pin(checkpoint_id, is_pinned=False), checkpoint_id)


@router.delete("/checkpoints/{checkpoint_id}")
def delete(service: TheService, checkpoint_id: int) -> Response:
    """Delete a complete checkpoint that is neither pinned nor in use; until `kept_until` it can be restored."""
    return _checkpoint(service, service.retention.delete(checkpoint_id), checkpoint_id)


@router.post("/checkpoints/{checkpoint_id}/restore")
def restore(service: TheService, checkpoint_id: int) -> Response:
    """Bring a deleted checkpoint back; it is pinned, so that no rule deletes it again."""
    return _checkpoint(service, service.retention.restore(checkpoint_id), checkpoint_id)


@router.get("/runs/{run_id}/deleted-checkpoints")
def deleted(service: TheService, run_id: str) -> Response:
    """A run's deleted checkpoints that can be restored, with who or which rule deleted them, and until when."""
    kept = service.retention.deleted(run_id)
    return answer([document(one) | {"kept_until": service.retention.kept_until(one)} for one in kept])


@router.delete("/deleted-checkpoints")
def empty_bin(service: TheService) -> Response:
    """Erase all deleted checkpoints of the projects whose admin you are at once; returns `freed_bytes`."""
    return answer({"freed_bytes": service.retention.empty_bin()})


@router.get("/storage")
def storage(service: TheService) -> Response:
    """The disk of the server's files: what is free, when it is full at the present rate (`full_in_s`), and the largest
    checkpoints that are neither latest nor best, nor pinned or needed, each with the command that deletes it."""
    forecast = service.disk_forecast.now()
    return answer(document(forecast) | {"is_soon": forecast.is_soon})


def _planned(plan: RunPlan) -> dict[str, object]:
    totals = totals_of([plan])
    return {
        "freed_bytes": totals.freed_bytes,
        "sentence": totals.sentence,
        "checkpoints": [document(one) for one in plan.checkpoints],
    }


def _checkpoint(service: Service, run_id: str, checkpoint_id: int) -> Response:
    """The checkpoint after its change, listed or deleted; without a bin its id alone."""
    views = [*checkpoint_queries.checkpoints(service.store, run_id), *service.retention.deleted(run_id)]
    view = next((view for view in views if view.id == checkpoint_id), None)
    if view is None:
        return answer({"id": checkpoint_id})
    return answer(document(view) | {"kept_until": service.retention.kept_until(view)})
