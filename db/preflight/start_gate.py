"""The gate before an attempt's ranks start: its nodes must pass the preflight first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.attempts.attempt_state import combine
from db.engine import Store
from db.health.incidents import preflight_failed
from db.lookups import add_history, latest_attempt
from db.models import Attempt, Check, Checkpoint, Node, Run, Task
from db.preflight import preflight_sessions
from domain.messages import LIVE_STATES, TERMINAL_STATES, CheckAnswer, NodeCheck, Reason, State
from domain.preflight import (
    CHECKPOINTS_WITH_ROOM,
    RESERVE_BYTES,
    NodeAnswer,
    NodeInterpreter,
    judge,
    judge_links,
    names,
    pairs,
    rate,
    red,
    sentence,
    unanswered,
    version_remark,
)
from domain.views import CheckView, PreflightCell


def may_start(session: Session, fence: int) -> bool:
    """Whether the attempt's nodes have passed the preflight; always True for a single node."""
    query = select(func.count(), func.max(Attempt.preflighted_at)).join(Task, Task.fence == Attempt.fence)
    tasks, passed_at = session.execute(query.where(Attempt.fence == fence)).one()
    return bool(tasks <= 1 or passed_at is not None)


def go_on(session: Session, attempt: Attempt, now: float, *, measure: bool) -> None:
    """Advance the gate after a node's report: store whom the others wait for, or let all start once they pass.

    An attempt whose nodes cannot train together is ended, since it has no process yet. `measure`: measure the
    bandwidth between nodes that have not been measured in their present configuration."""
    end_times = (attempt.stop_requested_at, attempt.end_requested_at)
    if attempt.preflighted_at is not None or any(at is not None for at in end_times):
        return
    tasks, check = (
        tasks_and_nodes(session, attempt.fence),
        preflight_sessions.of_attempt(session, attempt.fence),
    )
    if any(task.state == State.RUNNING for task, _ in tasks):  # a running task has passed the gate
        attempt.preflighted_at, attempt.waiting_for = now, None
        return
    answers = node_answers(session, attempt, tasks)
    cells = judge(answers, for_run=True) + measured_cells(session, check)
    if red(cells):
        preflight_failed(session, attempt, cells, now)
        _end(tasks, *sentence(answers, cells))
    elif waiting := unanswered(answers, cells):
        attempt.waiting_for = f"waits in preflight for {names(waiting)}"
    elif check is None and measure and _has_new_pairs(session, attempt, tasks):
        preflight_sessions.open_for_attempt(session, attempt, now)
        attempt.waiting_for = f"measures the bandwidth between {names([node for _, node in tasks])}"
    elif check is None or check.ended_at is not None:
        attempt.preflighted_at, attempt.waiting_for = now, None
        _tell(session, attempt, answers, check, now)


def node_answers(session: Session, attempt: Attempt, tasks: Sequence[tuple[Task, str]]) -> list[NodeAnswer]:
    """The preflight answers of an attempt's nodes so far, and the requirements on each."""
    resumed = session.get(Checkpoint, attempt.resume_checkpoint_id) if attempt.resume_checkpoint_id else None
    return [
        NodeAnswer(
            node,
            _facts(task, attempt),
            silent_s=_silent_s(task, attempt),
            needs_bytes=_needed_bytes(session, attempt, task, resumed),
            needs_reach=() if task.node_rank == 0 else (0,),
        )
        for task, node in tasks
    ]


def measured_cells(session: Session, check: Check | None) -> list[PreflightCell]:
    """The cells of an attempt's bandwidth measurement, and the failed cells that prevented it."""
    if check is None:
        return []
    return preflight_sessions.red_cells(session, check) + judge_links(preflight_sessions.links(session, check))


def tasks_and_nodes(session: Session, fence: int) -> Sequence[tuple[Task, str]]:
    """An attempt's tasks by node rank, with the nodes' names."""
    query = (
        select(Task, Node.name).join(Node, Node.id == Task.node_id).where(Task.fence == fence).order_by(Task.node_rank)
    )
    return [(task, name) for task, name in session.execute(query)]


def _end(tasks: Sequence[tuple[Task, str]], message: str, fix: str) -> None:
    """Fail all tasks; if a node has already reported why it cannot start, that is the reason for all."""
    failed = next((task for task, _ in tasks if task.state == State.FAILED), None)
    for task, _ in tasks:
        if task.state not in TERMINAL_STATES:
            task.state, task.reason = State.FAILED, failed.reason if failed else Reason.PREFLIGHT
            task.message = failed.message if failed else message
            task.next_step = failed.next_step if failed else fix


def _facts(task: Task, attempt: Attempt) -> NodeCheck | None:
    """The facts a node has reported, without attempts to reach an outdated master port."""
    if task.preflight is None:
        return None
    facts = NodeCheck.model_validate(task.preflight)
    facts.reached = [
        attempt_to_reach for attempt_to_reach in facts.reached if attempt_to_reach.port == attempt.master_port
    ]
    return facts


def _silent_s(task: Task, attempt: Attempt) -> float | None:
    if task.reason != Reason.NODE_LOST or task.reported_at is None:
        return None
    return task.reported_at - (attempt.placed_at or attempt.created_at)


def _needed_bytes(session: Session, attempt: Attempt, task: Task, resumed: Checkpoint | None) -> int:
    """Disk space for several checkpoints as large as the largest that this node rank has saved in this run."""
    earlier = select(Attempt.fence).where(Attempt.run_id == attempt.run_id)
    largest_known = select(func.max(Checkpoint.size_bytes)).where(
        Checkpoint.fence.in_(earlier), Checkpoint.node_rank == task.node_rank
    )
    largest = session.scalar(largest_known) or 0
    to_fetch = 0
    if resumed is not None:
        largest = max(largest, resumed.size_bytes if task.node_rank == resumed.node_rank else 0)
        to_fetch = 0 if (task.preflight or {}).get("is_prepared") else resumed.size_bytes
    return RESERVE_BYTES + CHECKPOINTS_WITH_ROOM * largest + to_fetch


def _has_new_pairs(session: Session, attempt: Attempt, tasks: Sequence[tuple[Task, str]]) -> bool:
    """Whether a pair was never measured; False for Slurm, whose nodes join again for every attempt."""
    if session.get_one(Run, attempt.run_id).spec.get("pool", "nodes") != "nodes":
        return False
    facts = [(task.node_id, NodeCheck.model_validate(task.preflight)) for task, _ in tasks]
    return bool(preflight_sessions.not_passed(session, facts, pairs(len(facts), preflight_sessions.PAIRS_BEFORE_A_RUN)))


def _tell(session: Session, attempt: Attempt, answers: Sequence[NodeAnswer], check: Check | None, now: float) -> None:
    if text := version_remark(
        [NodeInterpreter(answer.node, answer.facts.interpreter) for answer in answers if answer.facts]
    ):
        add_history(session, attempt.run_id, attempt.number, now, text)
    links = [] if check is None else preflight_sessions.links(session, check)
    measured = [f"{rate(link.bytes_per_s)} {link.node} – {link.peer}" for link in links if link.bytes_per_s]
    if measured:
        add_history(session, attempt.run_id, attempt.number, now, f"bandwidth measured: {', '.join(measured)}")
    slow = [f"{cell.node} – {cell.peer}: {cell.value}" for cell in judge_links(links) if cell.state == "warning"]
    if slow:
        add_history(session, attempt.run_id, attempt.number, now, f"slow links: {'; '.join(slow)}")


# Store nodes' preflight answers, advance the check, and with it the run that waits for it.


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
        tasks = tasks_and_nodes(session, attempt.fence)
        if len(tasks) < 2:
            return None
        check = preflight_sessions.of_attempt(session, attempt.fence)
        cells = judge(node_answers(session, attempt, tasks), for_run=True)
        if attempt.ended_at is not None:  # no more answers will come
            cells = [replace(cell, state="skipped") if cell.state == "waiting" else cell for cell in cells]
        return CheckView(
            id=None,
            asked_at=attempt.placed_at or attempt.created_at,
            ended_at=attempt.preflighted_at or attempt.ended_at,
            run_id=run_id,
            nodes=[node for _, node in tasks],
            cells=cells + measured_cells(session, check),
            bandwidth=preflight_sessions.bandwidth(len(tasks), check.measured if check else []),
            by=attempt.by,
        )


def _go_on(session: Session, moved: Sequence[Check], now: float) -> list[str]:
    """Start, or end, the runs whose measurement has ended; return their ids."""
    changed = []
    for check in moved:
        attempt = session.get(Attempt, check.fence) if check.fence is not None else None
        if check.ended_at is None or attempt is None or attempt.state not in LIVE_STATES:
            continue
        go_on(session, attempt, now, measure=True)
        session.flush()
        combine(session, attempt, now)
        changed.append(attempt.run_id)
    return changed
