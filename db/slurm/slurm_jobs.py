"""Attempts whose devices a Slurm cluster gives out: which gateway submits their jobs, and what became of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from db.engine import Store
from db.lifecycle.attempt_state import combine
from db.lifecycle.restarts import carry_on
from db.models import Attempt, Job, Node, Run, Task
from db.records.exceptions import Superseded
from db.records.history import add_history
from domain import slurm
from domain.messages import TERMINAL_STATES, JobReport, State
from domain.protocol import is_spoken
from domain.scheduling.models import ResourceRequest, Waits
from domain.scheduling.pools import matches
from domain.spec import JobWish, RunSpec
from domain.text.lists import listed

GATEWAY = "slurm"
"""The pool of gateways, of which no run gets any device."""
DELIVERY_S = 60.0
"""For so long after its grace a stopped run may take to hand over what it saved."""


def pool_of(fence: int) -> str:
    """The pool of the nodes of an attempt's job."""
    return f"{GATEWAY}:{fence}"


def give_out(store: Store, now: float, alive_within_s: float) -> bool:
    """Give queued attempts that have none yet to a gateway that is there; true when there were any."""
    with store.read() as session:
        if not _without_gateway(session, now):
            return False
    with store.write() as session:
        gateways = session.scalars(
            select(Node)
            .where(Node.pool == GATEWAY, Node.removed_at.is_(None))
            .order_by(Node.last_seen.desc())
        )
        there = [
            node
            for node in gateways
            if now - node.last_seen <= alive_within_s and not node.drain_requested_at
            if is_spoken(node.protocol)
        ]
        found = False
        for fence, spec in _without_gateway(session, now).items():
            able = [node for node in there if matches(node.name, node.labels, (), spec.labels)]
            if able:
                session.add(Job(fence=fence, gateway_id=able[0].id))
                found = True
        return found


def wishes(store: Store, gateway_id: str, secret_of: Callable[[int], str]) -> list[JobWish]:
    """All jobs that a gateway should have submitted or should end: the complete list, every time."""
    query = (
        select(Attempt, Run.spec)
        .join(Job, Job.fence == Attempt.fence)
        .join(Run, Run.id == Attempt.run_id)
        .where(Job.gateway_id == gateway_id, Job.ended_at.is_(None))
        .order_by(Attempt.fence)
    )
    with store.read() as session:
        return [_wish(attempt, spec, secret_of) for attempt, spec in session.execute(query)]


def reported(store: Store, gateway_id: str, fence: int, said: JobReport, now: float) -> str | None:
    """Take what a gateway says of a job; the run's id when that is news. Raises Superseded."""
    with store.write() as session:
        job, attempt = session.get(Job, fence), session.get(Attempt, fence)
        if job is None or attempt is None or job.gateway_id != gateway_id:
            raise Superseded(f"There is no attempt {fence} for this gateway.")
        before, job.said = _said(job), said.model_dump(mode="json")
        if said == before:
            return None
        if (line := _history_line(before, said)) is not None:
            add_history(session, attempt.run_id, attempt.number, now, line)
        if said.has_ended and job.ended_at is None:
            job.ended_at = now
            session.execute(update(Task).where(Task.fence == fence).values(lost_at=None))  # proven by Slurm
            _end(session, attempt, said, now)
        return attempt.run_id


def is_live(store: Store, fence: int) -> bool:
    """May nodes still join for this attempt?"""
    with store.read() as session:
        state = session.scalar(select(Attempt.state).where(Attempt.fence == fence))
        return state is not None and state not in TERMINAL_STATES


def pool_of_node(store: Store, node_id: str) -> str:
    """Empty for a node of ours."""
    with store.read() as session:
        return session.scalar(select(Node.pool).where(Node.id == node_id)) or ""


def waits(
    session: Session, queue: list[ResourceRequest], now: float, alive_within_s: float
) -> Mapping[int, Waits]:
    """Why attempts wait whose devices Slurm gives out, in its own words."""
    fences = [want.fence for want in queue if want.pool]
    query = select(Job, Node).join(Node, Node.id == Job.gateway_id).where(Job.fence.in_(fences))
    found = {job.fence: (job, gateway) for job, gateway in session.execute(query)} if fences else {}
    said = {}
    for fence in fences:
        if fence not in found:
            said[fence] = Waits(_no_gateway(session))
            continue
        job, gateway = found[fence]
        is_away = now - gateway.last_seen > alive_within_s
        away = f"no contact with the gateway {gateway.name}; when it was last heard, " if is_away else ""
        told = _said(job)
        said[fence] = Waits(away + slurm.waits(told), told.starts_at if told else None)
    return said


def _no_gateway(session: Session) -> str:
    mute = select(Node.name, Node.protocol).where(Node.pool == GATEWAY, Node.removed_at.is_(None))
    names = [name for name, protocol in session.execute(mute) if not is_spoken(protocol)]
    if names:
        return f"Slurm: the gateway {listed(names)} must be upgraded first; `rankzero nodes` says how"
    return "Slurm: no gateway to the cluster is at work; start `rankzero gateway` there"


def _without_gateway(session: Session, now: float) -> dict[int, RunSpec]:
    query = (
        select(Attempt.fence, Run.spec)
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Job, Job.fence == Attempt.fence)
        .where(Attempt.state == State.QUEUED, Job.fence.is_(None))
        .where(Run.spec["pool"].as_string() == GATEWAY, func.coalesce(Attempt.not_before, 0.0) <= now)
        .order_by(Attempt.fence)
    )
    return {fence: RunSpec.model_validate(spec) for fence, spec in session.execute(query)}


def _wish(attempt: Attempt, spec: dict[str, object], secret_of: Callable[[int], str]) -> JobWish:
    parsed = RunSpec.model_validate(spec)
    is_over = attempt.state in TERMINAL_STATES
    return JobWish(
        run_id=attempt.run_id,
        attempt=attempt.number,
        fence=attempt.fence,
        action="stop" if is_over or attempt.stop_requested_at is not None else "run",
        spec=parsed,
        secret=secret_of(attempt.fence),
        grace_s=DELIVERY_S if is_over else parsed.stop_grace_s + DELIVERY_S,
    )


def _said(job: Job) -> JobReport | None:
    return JobReport.model_validate(job.said) if job.said is not None else None


def _history_line(before: JobReport | None, said: JobReport) -> str | None:
    if before is not None and before.state == said.state:
        return None
    if said.state == "PENDING":
        return f"submitted to Slurm as job {said.job_id}"
    if said.state == "RUNNING":
        return f"Slurm job {said.job_id} runs on {said.nodes}"
    return f"Slurm job {said.job_id} has ended: {said.state}" if said.has_ended and said.job_id else None


def _end(session: Session, attempt: Attempt, said: JobReport, now: float) -> None:
    """A job that is over has no process left: what its workers have not told, Slurm has."""
    if attempt.state in TERMINAL_STATES:
        return
    why, stopped = slurm.end(said), attempt.stop_requested_at is not None
    ended = State.STOPPED if stopped else State.FAILED
    reason, message, step = (None, None, None) if stopped else why
    parts = list(session.scalars(select(Task).where(Task.fence == attempt.fence)))
    for part in parts:
        if part.state not in TERMINAL_STATES:
            part.state, part.reported_at = ended, now
            part.reason, part.message, part.next_step = reason, message, step
    session.flush()
    if parts:
        combine(session, attempt, now)
        return
    attempt.state, attempt.ended_at = ended, now
    attempt.waiting_for = attempt.expected_start_at = None
    attempt.reason, attempt.message, attempt.next_step = reason, message, step
    add_history(
        session, attempt.run_id, attempt.number, now, f"{ended.value}: {message}" if message else ended.value
    )
    carry_on(session, attempt, now)
