"""Store nodes' preflight answers, advance the check, and with it the run that waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from db.attempts.attempt_state import combine
from db.engine import Store
from db.lookups import latest_attempt
from db.models import Attempt, Check
from db.preflight import preflight_sessions, start_gate
from domain.messages import LIVE_STATES, CheckAnswer
from domain.preflight import judge
from domain.views import CheckView


def check_answered(
    store: Store, node_id: str, check_id: int, answer: CheckAnswer, now: float
) -> tuple[bool, list[str]]:
    """Store a node's answer; return whether the check advanced, and the ids of the runs that did."""
    with store.write() as session:
        check = preflight_sessions.answered(session, node_id, check_id, answer, now)
        return check is not None, _go_on(session, [check] if check else [], now)


def checks_overdue(store: Store, now: float) -> tuple[bool, list[str]]:
    """Advance checks without the nodes that are too late; return whether any did, and the ids of the runs that did."""
    with store.read() as session:
        if not preflight_sessions.has_open(session):
            return False, []
    with store.write() as session:
        moved = preflight_sessions.overdue(session, now)
        return bool(moved), _go_on(session, moved, now)


def preflight_of_run(store: Store, run_id: str) -> CheckView | None:
    """The preflight of a run's latest attempt; None for a run on one node. Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        tasks = start_gate.tasks_and_nodes(session, attempt.fence)
        if len(tasks) < 2:
            return None
        check = preflight_sessions.of_attempt(session, attempt.fence)
        cells = judge(start_gate.node_answers(session, attempt, tasks), for_run=True)
        if attempt.ended_at is not None:  # no more answers will come
            cells = [replace(cell, state="skipped") if cell.state == "waiting" else cell for cell in cells]
        return CheckView(
            id=None,
            asked_at=attempt.placed_at or attempt.created_at,
            ended_at=attempt.preflighted_at or attempt.ended_at,
            run_id=run_id,
            nodes=[node for _, node in tasks],
            cells=cells + start_gate.measured_cells(session, check),
            bandwidth=preflight_sessions.bandwidth(len(tasks), check.measured if check else []),
        )


def _go_on(session: Session, moved: Sequence[Check], now: float) -> list[str]:
    """Start, or end, the runs whose measurement has ended; return their ids."""
    changed = []
    for check in moved:
        attempt = session.get(Attempt, check.fence) if check.fence is not None else None
        if check.ended_at is None or attempt is None or attempt.state not in LIVE_STATES:
            continue
        start_gate.go_on(session, attempt, now, measure=True)
        session.flush()
        combine(session, attempt, now)
        changed.append(attempt.run_id)
    return changed
