"""Read attempts with their tasks and files, and the phases of their start on each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from db.attempts.liveness import last_heartbeat
from db.engine import Store
from db.lookups import attempt_spec, latest_attempt
from db.models import Attempt, Checkpoint, File, Node, Run, Series, Task
from db.people.visibility import visible_runs
from domain.launch.timeline import Phase, doing, is_finished, node_phases
from domain.masking.masking import masked_args, masked_changes, masked_env
from domain.messages import LIVE_STATES, TERMINAL_STATES, PhaseEnd, State
from domain.scheduling import resizing
from domain.scheduling.resizing import effective
from domain.spec import RunSpec
from domain.text.formats import learning_rate, plural
from domain.views import AttemptChange, AttemptView, FileView, LiveAttempt, TaskView

_HEARTBEATS = (
    select(Attempt.run_id, Attempt.number, Attempt.fence, Node.id, Node.last_seen)
    .join(Task, Task.fence == Attempt.fence)
    .join(Node, Node.id == Task.node_id)
    .where(Attempt.state.in_(LIVE_STATES), Task.state.not_in(TERMINAL_STATES))
)
"""Built once: it runs every second."""


def attempts(store: Store, run_id: str) -> list[AttemptView]:
    """A run's attempts, oldest first, with their tasks."""
    with store.read() as session:
        rows = session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number))
        return [_attempt_view(session, attempt) for attempt in rows]


def live_attempts(store: Store) -> list[LiveAttempt]:
    """Live attempts with the last heartbeat of their most silent node; a small query, because it runs every second."""
    heartbeats: dict[tuple[str, int, int], float] = {}
    with store.read() as session:
        for run_id, number, fence, node_id, last_seen in session.execute(_HEARTBEATS):
            key, at = (run_id, number, fence), last_heartbeat(session, node_id, last_seen)
            heartbeats[key] = min(at, heartbeats.get(key, at))
    return [LiveAttempt(*key, at) for key, at in heartbeats.items()]


def run_of_attempt(store: Store, fence: int) -> str | None:
    """The run that an attempt belongs to."""
    with store.read() as session:
        return session.scalar(select(Attempt.run_id).where(Attempt.fence == fence))


def files(store: Store, run_id: str, attempt: int | None = None) -> list[FileView]:
    """Mirrored files of an attempt (default: all attempts)."""
    query = (
        select(File, Attempt.number)
        .join(Attempt, Attempt.fence == File.fence)
        .where(Attempt.run_id == run_id)
        .order_by(File.fence, File.node_rank, File.path, File.generation)
    )
    if attempt is not None:
        query = query.where(Attempt.number == attempt)
    with store.read() as session:
        return [
            FileView(f.id, number, f.node_rank, f.path, f.generation, f.size_bytes)
            for f, number in session.execute(query)
        ]


def _attempt_view(session: Session, attempt: Attempt) -> AttemptView:
    tasks = session.execute(
        select(Task, Node.name)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence == attempt.fence)
        .order_by(Task.node_rank)
    )
    origin = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    return AttemptView(
        fence=attempt.fence,
        number=attempt.number,
        state=State(attempt.state),
        reason=attempt.reason,
        message=attempt.message,
        next_step=attempt.next_step,
        error=attempt.error,
        created_at=attempt.created_at,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        resumed_from=origin.path if origin else None,
        world_size=resizing.effective(attempt_spec(session, attempt), attempt.changes).world_size,
        changes=masked_changes(attempt.changes),
        tasks=[_task_view(task, node) for task, node in tasks],
        by=attempt.by,
        via=attempt.via,
        stop_requested_by=attempt.stop_requested_by,
    )


def _task_view(task: Task, node: str) -> TaskView:
    return TaskView(
        node_rank=task.node_rank,
        node=node,
        devices=list(task.devices),
        state=State(task.state),
        pid=task.pid,
        argv=None if task.argv is None else masked_args(task.argv),
        env=None if task.env is None else masked_env(task.env),
        cwd=task.cwd,
        exit_code=task.exit_code,
        message=task.message,
        interpreter=_without_packages(task.interpreter),
    )


def _without_packages(interpreter: dict[str, Any] | None) -> dict[str, Any] | None:
    """The interpreter without its hundreds of packages, which only comparisons show."""
    return interpreter and {name: value for name, value in interpreter.items() if name != "packages"}


def attempt_changes(session: Session, run_id: str, spec: RunSpec) -> list[AttemptChange]:
    """The starts of all attempts but the first, oldest first."""
    query = select(Attempt.number, Attempt.changes).where(Attempt.run_id == run_id).order_by(Attempt.number)
    return marks(spec, [(number, changes) for number, changes in session.execute(query)])


def marks(spec: RunSpec, attempts: Sequence[tuple[int, Mapping[str, Any] | None]]) -> list[AttemptChange]:
    """attempt 2: 1 node, accumulation 2"""
    changes = []
    for (_, before), (number, after) in pairwise(attempts):
        words = _differences(effective(spec, before), effective(spec, after))
        changes.append(AttemptChange(number, f"attempt {number}{': ' if words else ''}{', '.join(words)}"))
    return changes


def _differences(before: RunSpec, after: RunSpec) -> list[str]:
    texts = {
        plural(after.nodes, "node"): before.nodes != after.nodes,
        f"accumulation {after.accumulate}": before.accumulate != after.accumulate,
        f"batch {after.batch_size}": before.batch_size != after.batch_size,
        f"lr {learning_rate(after.scaled_lr or 0)}": before.scaled_lr != after.scaled_lr,
    }
    return [words for words, is_different in texts.items() if is_different]


# The start of a run's latest attempt, phase by phase on each node, and the run before it to compare with.

ENVIRONMENT_STATES = ("failed", "building", "ready")
CANDIDATES = 10
"""Earlier runs of the same script that are looked at for one that reached its first step."""
LEAST_OFFSET_S = 0.05
"""A smaller difference of two clocks is not corrected: it is hardly measured more precisely."""


def timeline(store: Store, run_id: str, now: float) -> list[Phase]:
    """The phases of the latest attempt's start: node by node, in order. Raises NoSuchRun."""
    with store.read() as session:
        return _phases(session, latest_attempt(session, run_id), now)


def doing_at_start(session: Session, attempt: Attempt, now: float) -> str | None:
    """Say what keeps an attempt from its first step: gpu-2 is importing torch. None where that is not known."""
    return doing(_phases(session, attempt, now))


def previous_timeline(store: Store, run_id: str, now: float) -> tuple[str, list[Phase]] | None:
    """(run id, phases) of the latest earlier run of the same script that reached its first step."""
    with store.read() as session:
        run = session.get(Run, run_id)
        if run is None:
            return None
        is_older = (Run.created_at < run.created_at, Run.id != run_id, visible_runs())
        same_target = Run.spec["target"].as_string() == run.spec["target"]
        query = select(Run).where(*is_older, same_target).order_by(Run.created_at.desc()).limit(CANDIDATES)
        for candidate in session.scalars(query):
            if all(candidate.spec.get(name) == run.spec.get(name) for name in ("entry", "module")):
                phases = _phases(session, latest_attempt(session, candidate.id), now)
                if is_finished(phases):
                    return candidate.id, phases
    return None


def _phases(session: Session, attempt: Attempt, now: float) -> list[Phase]:
    tasks = session.execute(
        select(Task, Node)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence == attempt.fence)
        .order_by(Task.node_rank)
    ).all()
    until = attempt.ended_at or now
    queued_at, placed_at = attempt.created_at, attempt.placed_at or until
    queued_s = max(0.0, placed_at - queued_at)
    if not tasks:
        return [Phase(None, "queued", queued_at, queued_s)]
    absent = _absent_phases(session, attempt)
    may_be_in_progress = _may_be_in_progress(session, attempt)
    phases = []
    for task, node in tasks:
        ends = [PhaseEnd.model_validate(end) for end in task.timeline or []]
        is_in_progress = may_be_in_progress and (bool(ends) or attempt.started_at is None)
        phases.append(Phase(node.name, "queued", queued_at, queued_s))
        in_progress_at = until if is_in_progress else None
        phases += node_phases(node.name, placed_at, ends, _clock_offset_s(node), in_progress_at, absent)
    return phases


def _absent_phases(session: Session, attempt: Attempt) -> set[str]:
    spec = resizing.effective(attempt_spec(session, attempt), attempt.changes)
    is_absent = {
        "checkpoint fetched": attempt.resume_checkpoint_id is None,
        "environment": _has_no_environment(session, attempt, spec),
        "data": not spec.stage,
        "preflight": spec.nodes == 1,
        "rendezvous": spec.world_size == 1,
    }
    return {phase for phase, absent in is_absent.items() if absent}


def _has_no_environment(session: Session, attempt: Attempt, spec: RunSpec) -> bool:
    """Whether no node has said that it makes an environment, nor is about to."""
    if spec.environment not in ("none", "auto") and not spec.environment.startswith("/"):
        return False
    return not _environments(session, attempt)


def _environments(session: Session, attempt: Attempt) -> list[dict[str, Any]]:
    interpreters = session.scalars(select(Task.interpreter).where(Task.fence == attempt.fence))
    return [interpreter["environment"] for interpreter in interpreters if interpreter and "environment" in interpreter]


def environment_of(store: Store, run_id: str) -> dict[str, Any] | None:
    """The environment of the latest attempt: kind, hash, python and state, of several nodes that of the last one.

    None where it has none. Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        environments = _environments(session, attempt)
    environments.sort(key=lambda environment: ENVIRONMENT_STATES.index(environment["state"]))
    names = ("kind", "hash", "python", "state")
    return {name: environments[0].get(name) for name in names} if environments else None


def _may_be_in_progress(session: Session, attempt: Attempt) -> bool:
    """Whether a phase may be in progress: not without a watch over the ranks, nor once they have stepped."""
    if attempt.state == State.SUCCEEDED or (attempt.started_at and not attempt_spec(session, attempt).probe):
        return False
    steps = exists().where(Series.fence == attempt.fence, Series.source == "probe")
    return not session.scalar(select(steps))


def _clock_offset_s(node: Node) -> float:
    offset_s = float((node.load or {}).get("clock_offset_s") or 0.0)
    return offset_s if abs(offset_s) >= LEAST_OFFSET_S else 0.0
