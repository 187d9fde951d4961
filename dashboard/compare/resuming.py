"""Compare a resume with what its checkpoint was written under, before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dashboard.compare.spec_changes import interpreter_differences, masked, spec_differences
from db.checkpoints import resume_origins
from db.checkpoints.resume_origins import Conditions
from db.engine import Store
from domain.checkpoint_use.resuming import ResumeChange, ResumePlan, SavedState, resume_plan
from domain.launch.plan import PLACEHOLDER
from domain.recovery import UnclearCheckpoint
from domain.spec import RunSpec
from domain.views import RunView


def plan_of_resume(store: Store, run_id: str, checkpoint: str | None = None) -> ResumePlan:
    """Compare the next attempt of a run with its beginning, a checkpoint or the latest.

    Raises NoSuchRun, InvalidRequest for a checkpoint that the run does not have."""
    return _plan(store, run_id, checkpoint, resume_origins.next_attempt(store, run_id))


def plan_of_launch(store: Store, spec: RunSpec) -> ResumePlan | None:
    """Compare a new run with the checkpoint of another that it resumes from; None for one that does not resume.

    The actor must be allowed to see the other run. Raises InvalidRequest."""
    if spec.resume is None:
        return None
    run_id, _, name = spec.resume.partition(":")
    return _plan(store, run_id, name or None, Conditions(spec, None))


def plan_of_attempt(store: Store, fence: int) -> ResumePlan | None:
    """Compare an attempt with the checkpoint that it began from; None where that is gone."""
    start = resume_origins.start_of(store, fence)
    return _compared(*start) if start else None


def unless_live(plan: ResumePlan, run: RunView) -> ResumePlan:
    """Return the plan, which is not possible while the run has not ended."""
    if run.state.is_terminal:
        return plan
    why = f"Run {run.id} is {run.state}; only ended runs can be resumed. Stop it first."
    return replace(plan, possible=False, why=why)


def _plan(store: Store, run_id: str, checkpoint: str | None, now: Conditions) -> ResumePlan:
    try:
        found = resume_origins.origin(store, run_id, checkpoint)
    except UnclearCheckpoint as unclear:
        return ResumePlan(None, possible=False, why=str(unclear))
    if found is None:
        return ResumePlan(None)
    return _compared(*found, now)


def _compared(saved: SavedState, then: Conditions, now: Conditions) -> ResumePlan:
    worlds = then.spec.world_size, now.spec.world_size
    return resume_plan(saved, _changes(then, now), now.spec.precision, worlds)


def _changes(then: Conditions, now: Conditions) -> Iterator[ResumeChange]:
    rows = [*map(masked, spec_differences([_without_placeholders(one.spec) for one in (then, now)]))]
    if then.interpreter and now.interpreter:
        rows += interpreter_differences([then.interpreter, now.interpreter])
    is_scaled = then.spec.lr_scaling != "none" or now.spec.lr_scaling != "none"
    for row in rows:
        is_known = None not in row.values or not row.field.startswith(("interpreter.", "package."))
        if is_known and not (row.field == "lr" and is_scaled):  # the rate after scaling counts
            yield ResumeChange(row.field, row.label, *row.values)
    before, after = then.spec.snapshot, now.spec.snapshot
    if before and after and before != after:
        yield ResumeChange("code", "Code", before[:12], after[:12])


def _without_placeholders(spec: RunSpec) -> RunSpec:
    """Return the spec without the arguments that pass its own fields, which are compared by themselves."""
    arguments = list[str]()
    for argument in spec.args:
        if not PLACEHOLDER.search(argument):
            arguments.append(argument)
        elif arguments and arguments[-1].startswith("-") and not argument.startswith("-"):
            arguments.pop()
    return spec.model_copy(update={"args": arguments})
