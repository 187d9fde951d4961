"""Derive an attempt's state from its tasks' states, and apply the restart policy when it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.attempts.restarts import carry_on, is_resizing
from db.history import add_history
from db.models import Attempt, Node, Task
from domain.messages import TERMINAL_STATES, Reason, State


def combine(session: Session, attempt: Attempt, now: float) -> None:
    """Set the attempt's state from its tasks' states alone, with history, and apply the restart policy at its end."""
    tasks = list(session.scalars(select(Task).where(Task.fence == attempt.fence).order_by(Task.node_rank)))
    before, attempt.state = attempt.state, _state_of(attempt, tasks)
    if attempt.state == State.RUNNING and attempt.started_at is None:
        attempt.started_at = now
    if attempt.state != State.STARTING:
        attempt.waiting_for = None
    if attempt.state in TERMINAL_STATES:
        attempt.ended_at = now
        _explain(attempt, tasks)
    if attempt.state != before:
        names = ", ".join(session.scalars(select(Node.name).where(Node.id.in_({p.node_id for p in tasks}))))
        add_history(session, attempt.run_id, attempt.number, now, _history_line(attempt, names))
        carry_on(session, attempt, now)


def _state_of(attempt: Attempt, tasks: Sequence[Task]) -> State:
    states = {State(task.state) for task in tasks}
    if states <= TERMINAL_STATES:
        order = (State.FAILED, State.STOPPED, State.SUCCEEDED)
        last = next(state for state in order if state in states)
        return State.FAILED if last == State.STOPPED and _was_ended_by_policy(attempt) else last
    if State.STOPPING in states or states & {State.FAILED, State.STOPPED}:
        return State.STOPPING
    return State.STARTING if State.STARTING in states else State.RUNNING


def _was_ended_by_policy(attempt: Attempt) -> bool:
    """Whether the run's policy ended it; a person's stop request takes precedence."""
    return attempt.end_requested_at is not None and attempt.stop_requested_at is None


def _explain(attempt: Attempt, tasks: Sequence[Task]) -> None:
    if attempt.state == State.FAILED and _was_ended_by_policy(attempt):
        attempt.reason, attempt.message = attempt.end_reason, attempt.end_message
        attempt.next_step = next((task.next_step for task in tasks if task.lost_at is not None), None)
        return
    if attempt.state == State.STOPPED and is_resizing(attempt):
        attempt.message = f"Ended {attempt.resize_message}."
        return
    if attempt.state == State.STOPPED and attempt.end_requested_at is None and attempt.end_message:
        attempt.message = attempt.end_message
        return
    explained = [task for task in tasks if task.state == attempt.state and task.message]
    if not explained:
        return
    first = min(explained, key=_who_speaks_first)
    attempt.reason, attempt.message, attempt.error = first.reason, first.message, first.error
    attempt.next_step = first.next_step


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
