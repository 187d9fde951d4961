"""Derive an attempt's state from its tasks' states, and apply the restart policy when it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.attempts import deliveries
from db.attempts.new_attempt import POLICY, by_policy, open_next_attempt
from db.health import incidents
from db.lookups import add_history
from db.models import Attempt, Checkpoint, Node, Run, Series, Task, WatchedRun, WatchedTask
from db.people.users import by_whom
from domain.agents.budget import OverBudget
from domain.messages import SCRIPT_KINDS, TERMINAL_STATES, Reason, State
from domain.recovery import FailedAttempt, Leave, Restart, UnclearCheckpoint, decide_restart
from domain.spec import RunSpec


def combine(session: Session, attempt: Attempt, now: float) -> None:
    """Set the attempt's state from its tasks' states alone, with history, and apply the restart policy at its end."""
    tasks = list(session.scalars(select(Task).where(Task.fence == attempt.fence).order_by(Task.node_rank)))
    before, attempt.state = attempt.state, _state_of(session, attempt, tasks)
    if attempt.state == State.RUNNING and attempt.started_at is None:
        attempt.started_at = now
    if attempt.state != State.STARTING:
        attempt.waiting_for = None
    if attempt.state in TERMINAL_STATES:
        attempt.ended_at = _ended_at(session, attempt, now)
        first = _explain(session, attempt, tasks)
        if attempt.state == State.FAILED and first is not None and attempt.stop_requested_at is None:
            incidents.attempt_failed(session, attempt, first, now)
    if attempt.state != before:
        names = ", ".join(session.scalars(select(Node.name).where(Node.id.in_({p.node_id for p in tasks}))))
        add_history(session, attempt.run_id, attempt.number, now, _history_line(attempt, names))
        carry_on(session, attempt, now)


def _state_of(session: Session, attempt: Attempt, tasks: Sequence[Task]) -> State:
    states = {State(task.state) for task in tasks}
    if states <= TERMINAL_STATES:
        order = (State.FAILED, State.STOPPED, State.SUCCEEDED)
        last = next(state for state in order if state in states)
        return State.FAILED if last == State.STOPPED and _was_ended_by_policy(attempt) else last
    if len(states) > 1 and is_watched(session, attempt):
        return State.STOPPING if State.STOPPING in states else State.RUNNING
    if State.STOPPING in states or states & {State.FAILED, State.STOPPED}:
        return State.STOPPING
    return State.STARTING if State.STARTING in states else State.RUNNING


def _ended_at(session: Session, attempt: Attempt, now: float) -> float:
    """When the last process ended: of a watched run that may be long ago, of any other it is now."""
    ended_at = session.scalar(select(func.max(WatchedTask.ended_at)).where(WatchedTask.fence == attempt.fence))
    return now if ended_at is None else max(ended_at, attempt.started_at or ended_at)


def is_watched(session: Session, attempt: Attempt) -> bool:
    """Whether others started it: its processes come, end and are left alone one by one."""
    return session.get(WatchedRun, attempt.run_id) is not None


def _was_ended_by_policy(attempt: Attempt) -> bool:
    """Whether the run's policy ended it; a person's stop request takes precedence."""
    return attempt.end_requested_at is not None and attempt.stop_requested_at is None


def _explain(session: Session, attempt: Attempt, tasks: Sequence[Task]) -> Task | None:
    """Set the reason and message of the attempt's end; return the task that explains it."""
    if attempt.state == State.FAILED and _was_ended_by_policy(attempt):
        attempt.reason, attempt.message = attempt.end_reason, attempt.end_message
        attempt.next_step = next((task.next_step for task in tasks if task.lost_at is not None), None)
        return None
    if attempt.state == State.STOPPED and is_resizing(attempt):
        attempt.message = f"Ended {attempt.resize_message}."
        return None
    if attempt.state == State.STOPPED and attempt.end_requested_at is None and attempt.end_message:
        attempt.message = attempt.end_message
        return None
    explained = [task for task in tasks if task.state == attempt.state and task.message]
    if not explained:
        return None
    first = min(explained, key=_who_speaks_first)
    attempt.reason, attempt.error = first.reason, first.error
    attempt.message = by_whom(session, first.message or "", attempt.stop_requested_by)
    attempt.next_step = first.next_step
    return first


def _who_speaks_first(task: Task) -> tuple[bool, bool, float, int]:
    """Sort key of the tasks that may explain the end: the first is the cause.

    For a stop, a node that could not be reached comes first. For failures, the earliest failing rank by its own
    clock; ranks that only noticed another one's end, or wait for it, come last."""
    error = task.error or {}
    is_consequence = bool(error.get("is_consequence")) or task.reason == Reason.HUNG
    could_not_be_asked = task.state == State.STOPPED and task.lost_at is not None
    return not could_not_be_asked, is_consequence, error.get("at") or math.inf, task.node_rank


def _history_line(attempt: Attempt, nodes: str) -> str:
    lines = {State.STARTING: f"starting on {nodes}", State.RUNNING: "running: all ranks exist"}
    line = lines.get(State(attempt.state), attempt.state)
    return f"{line}: {attempt.message}" if attempt.message else line


# Apply a run's restart policy when an attempt ends.


def carry_on(session: Session, attempt: Attempt, now: float) -> int | None:
    """Open the next attempt if the run's spec says so; return its number, else None.

    It belongs to the transaction in which the attempt ended, so that a run that continues is never seen as ended."""
    run = session.get_one(Run, attempt.run_id)
    if run.deleted_at is not None:
        return None
    has_failed_on_the_way = attempt.state == State.FAILED and attempt.rollback is not None
    if is_resizing(attempt) and (attempt.state == State.STOPPED or has_failed_on_the_way):
        why = attempt.rollback["why"] if attempt.rollback else "continues on the available nodes"
        with by_policy(session, attempt.run_id, via="a rollback" if attempt.rollback else POLICY):
            return _as_decided(session, attempt, Restart(why, attempt.restarts), now)
    if attempt.state != State.FAILED or attempt.stop_requested_at is not None:
        return None
    spec = RunSpec.model_validate(run.spec)
    if not (spec.max_restarts or spec.elastic or spec.on_hang == "resume"):
        return None
    decision = decide_restart(spec, _failures(session, attempt.run_id))
    with by_policy(session, attempt.run_id):
        return _as_decided(session, attempt, decision, now)


def _as_decided(session: Session, attempt: Attempt, decision: Restart | Leave, now: float) -> int | None:
    if isinstance(decision, Leave):
        if decision.why:
            add_history(session, attempt.run_id, attempt.number, now, decision.why)
        return None
    try:
        return open_next_attempt(
            session, attempt.run_id, now, None,
            why=decision.why, restarts=decision.restarts, pause_s=decision.pause_s,
        )  # fmt: skip
    except (UnclearCheckpoint, OverBudget) as refusal:
        add_history(session, attempt.run_id, attempt.number, now, f"not restarted: {refusal}")
        return None


def is_resizing(attempt: Attempt) -> bool:
    """Whether its end was requested only to continue on other nodes, or from before a spike."""
    return attempt.resize_requested_at is not None and attempt.stop_requested_at is None


def _failures(session: Session, run_id: str) -> list[FailedAttempt]:
    """The latest attempts that failed in a row, newest first; at most 64."""
    failures = []
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc())
    for attempt in session.scalars(newest.limit(64)):
        if attempt.state != State.FAILED:
            break
        failures.append(_failure(session, attempt))
    return failures


def _failure(session: Session, attempt: Attempt) -> FailedAttempt:
    return FailedAttempt(
        reason=attempt.reason,
        sentence=_in_a_line(attempt.message or attempt.reason or "it failed"),
        key=_key(attempt.reason, attempt.error or {}),
        has_stepped=_has_stepped(session, attempt),
        restarts=attempt.restarts,
    )


def _in_a_line(sentence: str) -> str:
    return sentence.removesuffix(".").replace("The ", "the ", 1) if sentence.startswith("The ") else sentence


def _key(reason: str | None, error: dict[str, Any]) -> tuple[object, ...]:
    return reason, *(error.get(name) for name in ("exception", "exit_code", "file", "line"))


def _has_stepped(session: Session, attempt: Attempt) -> bool:
    """Whether the attempt made a step, by the probe's series or by its logged ones, or may have made one."""
    if deliveries.awaiting_points(session, [attempt.fence]):
        return True  # its points are on their way
    of_attempt = select(func.max(Series.last_step)).where(Series.fence == attempt.fence)
    if session.scalar(of_attempt.where(Series.source == "probe")):
        return True
    start = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    logged = session.scalar(of_attempt.where(Series.source.in_(SCRIPT_KINDS)))
    return logged is not None and logged > ((start.step if start else None) or 0)
