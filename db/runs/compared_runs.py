"""Read what several runs are compared by: specs, states, nodes and interpreters."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import and_, func, select

from db.engine import Store
from db.models import Attempt, File, Node, Run, Series, Task
from db.people.visibility import visible_runs
from domain.messages import SCRIPT_KINDS, State
from domain.scheduling import resizing
from domain.spec import RunSpec


@dataclass
class ComparedRun:
    """A run as it is compared with others; the spec includes its secrets, which must not be shown."""

    id: str
    name: str
    spec: RunSpec
    project: str
    state: State
    reason: str | None
    nodes: list[str] = field(default_factory=list)
    """Names of the nodes of the latest attempt, by node rank."""
    interpreter: dict[str, Any] | None = None
    """The interpreter of the latest task that reported one."""


def compared_runs(store: Store, run_ids: Collection[str]) -> dict[str, ComparedRun]:
    """Return the runs that exist, by id, in the order of the ids."""
    newest = select(func.max(Attempt.fence)).where(Attempt.run_id.in_(run_ids)).group_by(Attempt.run_id)
    query = (
        select(Run, Attempt).join(Attempt, Attempt.run_id == Run.id).where(Attempt.fence.in_(newest), visible_runs())
    )
    tasks = (
        select(Attempt.run_id, Attempt.fence, Node.name, Task.interpreter)
        .join(Attempt, Attempt.fence == Task.fence)
        .join(Node, Node.id == Task.node_id)
        .order_by(Task.fence, Task.node_rank)
    )
    with store.read() as session:
        latest = {run.id: (run, attempt) for run, attempt in session.execute(query)}
        runs = {run_id: _compared(*latest[run_id]) for run_id in run_ids if run_id in latest}
        for run_id, fence, node, interpreter in session.execute(tasks.where(Attempt.run_id.in_(runs))):
            run = runs[run_id]
            if fence == latest[run_id][1].fence:
                run.nodes.append(node)
            run.interpreter = interpreter if interpreter and "path" in interpreter else run.interpreter
    return runs


def settings_files(store: Store, run_ids: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the id and the size in bytes of the files with logged settings of each run's latest attempt."""
    newest = select(func.max(Attempt.fence)).where(Attempt.run_id.in_(run_ids)).group_by(Attempt.run_id)
    query = (
        select(Attempt.run_id, File.id, File.size_bytes)
        .join(Attempt, Attempt.fence == File.fence)
        .where(File.fence.in_(newest), File.path.like("probe/loggers/settings-%.jsonl"))
        .order_by(File.fence, File.node_rank, File.path, File.generation)
    )
    files: dict[str, list[tuple[int, int]]] = {}
    with store.read() as session:
        for run_id, file_id, size_bytes in session.execute(query):
            files.setdefault(run_id, []).append((file_id, size_bytes))
    return files


class AttemptBatch(NamedTuple):
    """The samples of an optimizer step of one attempt."""

    attempt: int
    global_batch: int | None
    """None where the script sets its own batch size."""
    first_step: int | None
    """Of the series that the script logs; None without any."""


def attempt_batches(store: Store, run_ids: Collection[str]) -> dict[str, list[AttemptBatch]]:
    """Return the global batch of each attempt, older ones first; an attempt on fewer nodes may have another."""
    logged = and_(Series.fence == Attempt.fence, Series.source.in_(SCRIPT_KINDS))
    first_step = select(func.min(Series.first_step)).where(logged).scalar_subquery()
    query = (
        select(Attempt.run_id, Attempt.number, Attempt.changes, Run.spec, first_step)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.run_id.in_(run_ids))
        .order_by(Attempt.run_id, Attempt.number)
    )
    batches: dict[str, list[AttemptBatch]] = {run_id: [] for run_id in run_ids}
    with store.read() as session:
        for run_id, number, changes, spec, step in session.execute(query):
            own = resizing.effective(RunSpec.model_validate(spec), changes)
            batches[run_id].append(AttemptBatch(number, own.global_batch_size, step))
    return batches


def _compared(run: Run, attempt: Attempt) -> ComparedRun:
    spec, state = RunSpec.model_validate(run.spec), State(attempt.state)
    return ComparedRun(run.id, run.name, spec, run.project, state, attempt.reason)
