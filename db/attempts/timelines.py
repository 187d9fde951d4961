"""The start of a run's latest attempt, phase by phase on each node, and the run before it to compare with."""

from __future__ import annotations

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.lookups import attempt_spec, latest_attempt
from db.models import Attempt, Node, Run, Series, Task
from domain.launch.timeline import Phase, is_finished, node_phases
from domain.messages import PhaseEnd, State
from domain.scheduling import resizing

CANDIDATES = 10
"""Earlier runs of the same script that are looked at for one that reached its first step."""
LEAST_OFFSET_S = 0.05
"""A smaller difference of two clocks is not corrected: it is hardly measured more precisely."""


def timeline(store: Store, run_id: str, now: float) -> list[Phase]:
    """The phases of the latest attempt's start: node by node, in order. Raises NoSuchRun."""
    with store.read() as session:
        return _phases(session, latest_attempt(session, run_id), now)


def previous_timeline(store: Store, run_id: str, now: float) -> tuple[str, list[Phase]] | None:
    """(run id, phases) of the latest earlier run of the same script that reached its first step."""
    with store.read() as session:
        run = session.get(Run, run_id)
        if run is None:
            return None
        is_older = (Run.created_at < run.created_at, Run.id != run_id)
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
        "preflight": spec.nodes == 1,
        "rendezvous": spec.world_size == 1,
    }
    return {phase for phase, absent in is_absent.items() if absent}


def _may_be_in_progress(session: Session, attempt: Attempt) -> bool:
    """Whether a phase may be in progress: not where nobody watches the ranks, and not once they have stepped."""
    if attempt.state == State.SUCCEEDED or (attempt.started_at and not attempt_spec(session, attempt).probe):
        return False
    steps = exists().where(Series.fence == attempt.fence, Series.source == "probe")
    return not session.scalar(select(steps))


def _clock_offset_s(node: Node) -> float:
    offset_s = float((node.load or {}).get("clock_offset_s") or 0.0)
    return offset_s if abs(offset_s) >= LEAST_OFFSET_S else 0.0
