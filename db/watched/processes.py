"""The processes of watched runs as they describe themselves: their ranks, their worlds, and when they ended."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.findings import findings
from db.models import Attempt, Run, WatchedTask
from domain.messages import TERMINAL_STATES, TaskReport
from domain.spec import RunSpec
from domain.watching.described import dimensions
from domain.watching.worlds import KIND, SeenWorld, worlds_finding


def reported(session: Session, attempt: Attempt, node_rank: int, report: TaskReport, now: float) -> None:
    """Store what a report says of a process that watches; of any other task, nothing."""
    has_ended = report.state in TERMINAL_STATES
    if not (has_ended or report.seen) or (task := session.get(WatchedTask, (attempt.fence, node_rank))) is None:
        return
    if has_ended and task.ended_at is None:
        task.ended_at = now if report.ended_at is None else min(report.ended_at, now)
    if report.seen:
        task.ranks, task.seen_at = len(report.seen.ranks) or task.ranks, now
        task.world_size = report.seen.world_size or task.world_size
        session.flush()
        compare(session, attempt, now)


def compare(session: Session, attempt: Attempt, now: float) -> None:
    """Set how many ranks an attempt has, and find where its processes have worlds of their own."""
    of_attempt = select(WatchedTask).where(WatchedTask.fence == attempt.fence).order_by(WatchedTask.node_rank)
    tasks = session.scalars(of_attempt).all()
    spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
    nodes, ranks = dimensions(spec.nodes, [task.ranks for task in tasks], [task.world_size for task in tasks])
    shape = {"nodes": nodes, "gpus_per_node": ranks}
    attempt.changes = {name: value for name, value in shape.items() if value != getattr(spec, name)} or None
    findings.judge(session, attempt, KIND, worlds_finding(_worlds(tasks)), now)


def _worlds(tasks: Sequence[WatchedTask]) -> list[SeenWorld]:
    """Return the worlds that the processes see; before any has seen its ranks, what their environment says."""
    seen = [task for task in tasks if task.seen_at is not None] or tasks
    return [
        SeenWorld(task.node_rank, task.host, task.world_size, task.ranks)
        for task in seen
        if task.world_size is not None
    ]
