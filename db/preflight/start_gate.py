"""Whether the ranks of an attempt may start: not before its nodes were found fit to train together."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.models import Attempt, Check, Checkpoint, Node, Run, Task
from db.preflight import preflight_sessions
from db.records.history import add_history
from domain.messages import TERMINAL_STATES, NodeCheck, Reason, State
from domain.preflight.judgement import (
    CHECKPOINTS_WITH_ROOM,
    RESERVE_BYTES,
    Asked,
    judge,
    judge_links,
    rate,
    red,
    sentence,
    unanswered,
)
from domain.preflight.pairs import pairs
from domain.preflight.version_match import Told, names, remark
from domain.views import PreflightCell


def may_start(session: Session, fence: int) -> bool:
    """True once all nodes were found fit to start, for good. A node alone need not wait."""
    query = select(func.count(), func.max(Attempt.preflighted_at)).join(Task, Task.fence == Attempt.fence)
    parts, passed_at = session.execute(query.where(Attempt.fence == fence)).one()
    return bool(parts <= 1 or passed_at is not None)


def go_on(session: Session, attempt: Attempt, now: float, *, measure: bool) -> None:
    """After a node has spoken: say for whom the others wait, or when all are well, let them start.

    What cannot train together is ended: nothing of it has a process yet. `measure`: the bandwidth between nodes
    that have not passed as they are now."""
    wished = (attempt.stop_requested_at, attempt.end_requested_at)
    if attempt.preflighted_at is not None or any(at is not None for at in wished):
        return
    found, check = (
        parts_and_nodes(session, attempt.fence),
        preflight_sessions.of_attempt(session, attempt.fence),
    )
    if any(part.state == State.RUNNING for part, _ in found):  # whoever runs has started
        attempt.preflighted_at, attempt.waiting_for = now, None
        return
    asked = asked_of(session, attempt, found)
    cells = judge(asked, for_run=True) + measured_cells(session, check)
    if red(cells):
        _end(found, *sentence(asked, cells))
    elif waiting := unanswered(asked, cells):
        attempt.waiting_for = f"waits in preflight for {names(waiting)}"
    elif check is None and measure and _has_new_pairs(session, attempt, found):
        preflight_sessions.open_for_attempt(session, attempt, now)
        attempt.waiting_for = f"measures the bandwidth between {names([node for _, node in found])}"
    elif check is None or check.ended_at is not None:
        attempt.preflighted_at, attempt.waiting_for = now, None
        _tell(session, attempt, asked, check, now)


def asked_of(session: Session, attempt: Attempt, found: Sequence[tuple[Task, str]]) -> list[Asked]:
    """What the nodes of an attempt have said so far, and what is needed of each."""
    resumed = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    return [
        Asked(
            node,
            _facts(part, attempt),
            silent_s=_silent_s(part, attempt),
            needs_bytes=_needed_bytes(session, attempt, part, resumed),
            needs_reach=() if part.node_rank == 0 else (0,),
        )
        for part, node in found
    ]


def measured_cells(session: Session, check: Check | None) -> list[PreflightCell]:
    """What an attempt's measurement found, and what was red before it came to that."""
    if check is None:
        return []
    return preflight_sessions.red_cells(session, check) + judge_links(
        preflight_sessions.links(session, check)
    )


def parts_and_nodes(session: Session, fence: int) -> Sequence[tuple[Task, str]]:
    """An attempt's parts by node rank, with the nodes' names."""
    query = (
        select(Task, Node.name)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence == fence)
        .order_by(Task.node_rank)
    )
    return [(part, name) for part, name in session.execute(query)]


def _end(found: Sequence[tuple[Task, str]], message: str, mend: str) -> None:
    """Where a node has said already why it cannot start, that is the reason for all."""
    said = next((part for part, _ in found if part.state == State.FAILED), None)
    for part, _ in found:
        if part.state not in TERMINAL_STATES:
            part.state, part.reason = State.FAILED, said.reason if said else Reason.PREFLIGHT
            part.message = said.message if said else message
            part.next_step = said.next_step if said else mend


def _facts(part: Task, attempt: Attempt) -> NodeCheck | None:
    """A way to where the nodes do not meet any more says nothing."""
    if part.preflight is None:
        return None
    facts = NodeCheck.model_validate(part.preflight)
    facts.reached = [way for way in facts.reached if way.port == attempt.master_port]
    return facts


def _silent_s(part: Task, attempt: Attempt) -> float | None:
    if part.reason != Reason.NODE_LOST or part.reported_at is None:
        return None
    return part.reported_at - (attempt.placed_at or attempt.created_at)


def _needed_bytes(session: Session, attempt: Attempt, part: Task, resumed: Checkpoint | None) -> int:
    """Room for some checkpoints as large as the largest that this node's ranks have saved before in this run."""
    earlier = select(Attempt.fence).where(Attempt.run_id == attempt.run_id)
    known = select(func.max(Checkpoint.size_bytes)).where(
        Checkpoint.fence.in_(earlier), Checkpoint.node_rank == part.node_rank
    )
    largest = session.scalar(known) or 0
    to_fetch = 0
    if resumed is not None:
        largest = max(largest, resumed.size_bytes if part.node_rank == resumed.node_rank else 0)
        to_fetch = 0 if (part.preflight or {}).get("is_prepared") else resumed.size_bytes
    return RESERVE_BYTES + CHECKPOINTS_WITH_ROOM * largest + to_fetch


def _has_new_pairs(session: Session, attempt: Attempt, found: Sequence[tuple[Task, str]]) -> bool:
    """Nodes that a Slurm cluster gives join anew for every attempt: each time would be the first."""
    if session.get_one(Run, attempt.run_id).spec.get("pool", "nodes") != "nodes":
        return False
    known = [(part.node_id, NodeCheck.model_validate(part.preflight)) for part, _ in found]
    return bool(
        preflight_sessions.not_passed(
            session, known, pairs(len(known), preflight_sessions.PAIRS_BEFORE_A_RUN)
        )
    )


def _tell(
    session: Session, attempt: Attempt, asked: Sequence[Asked], check: Check | None, now: float
) -> None:
    if text := remark([Told(one.node, one.facts.interpreter) for one in asked if one.facts]):
        add_history(session, attempt.run_id, attempt.number, now, text)
    links = [] if check is None else preflight_sessions.links(session, check)
    said = [f"{rate(each.bytes_per_s)} {each.node} – {each.peer}" for each in links if each.bytes_per_s]
    if said:
        add_history(session, attempt.run_id, attempt.number, now, f"bandwidth measured: {', '.join(said)}")
    slow = [
        f"{cell.node} – {cell.peer}: {cell.value}" for cell in judge_links(links) if cell.state == "warning"
    ]
    if slow:
        add_history(session, attempt.run_id, attempt.number, now, f"slow links: {'; '.join(slow)}")
