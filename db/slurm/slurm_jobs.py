"""Attempts in Slurm pools: the gateways that submit their jobs, and the reports about these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from db.attempts import deliveries
from db.attempts.attempt_state import carry_on, combine
from db.engine import Store
from db.exceptions import Superseded
from db.health.incidents import slurm_nodes_left_out
from db.lookups import add_history
from db.models import Attempt, Job, Node, Run, Task
from domain import slurm
from domain.assignments import DesiredJob
from domain.liveness import SILENT_AFTER_S, is_silent
from domain.messages import TERMINAL_STATES, JobReport, State
from domain.protocol import is_spoken
from domain.scheduling.models import ResourceRequest, Waits, matches
from domain.spec import RunSpec
from domain.text.formats import MOST_NAMED, as_list

GATEWAY = "slurm"
"""The pool of gateways, whose devices no run gets."""
DELIVERY_S = 60.0
"""Seconds after its grace period in which a stopped run may upload what it saved."""


def pool_of(fence: int) -> str:
    """The pool of the nodes of an attempt's job."""
    return f"{GATEWAY}:{fence}"


def assign_gateways(store: Store, now: float) -> bool:
    """Assign a connected gateway to queued attempts that have none yet; True when there were any."""
    with store.read() as session:
        if not _without_gateway(session, now):
            return False
    with store.write() as session:
        gateways = session.scalars(
            select(Node).where(Node.pool == GATEWAY, Node.removed_at.is_(None)).order_by(Node.last_seen.desc())
        )
        usable = [
            node
            for node in gateways
            if not is_silent(now - node.last_seen) and not node.drain_requested_at
            if is_spoken(node.protocol)
        ]
        has_assigned = False
        for fence, spec in _without_gateway(session, now).items():
            matching = [node for node in usable if matches(node.name, node.labels, (), spec.labels)]
            if matching:
                session.add(Job(fence=fence, gateway_id=matching[0].id))
                has_assigned = True
        return has_assigned


def job_requests(store: Store, gateway_id: str, secret_of: Callable[[int], str]) -> list[DesiredJob]:
    """All jobs that a gateway should have submitted or should end; always the complete list."""
    query = (
        select(Attempt, Run.spec)
        .join(Job, Job.fence == Attempt.fence)
        .join(Run, Run.id == Attempt.run_id)
        .where(Job.gateway_id == gateway_id, Job.ended_at.is_(None))
        .order_by(Attempt.fence)
    )
    with store.read() as session:
        exclude = slurm_nodes_left_out(session)
        rows = session.execute(query).all()
        sending = deliveries.open_among(session, [attempt.fence for attempt, _ in rows])
        return [
            _job_request(attempt, spec, secret_of, exclude, is_sending=attempt.fence in sending)
            for attempt, spec in rows
        ]


def reported(store: Store, gateway_id: str, fence: int, report: JobReport, now: float) -> str | None:
    """Store a gateway's report about a job; return the run's id when it is new. Raises Superseded."""
    with store.write() as session:
        job, attempt = session.get(Job, fence), session.get(Attempt, fence)
        if job is None or attempt is None or job.gateway_id != gateway_id:
            raise Superseded(f"There is no attempt {fence} for this gateway.")
        previous, job.said = _last_report(job), report.model_dump(mode="json")
        if report == previous:
            return None
        if (line := _history_line(previous, report)) is not None:
            add_history(session, attempt.run_id, attempt.number, now, line)
        if report.has_ended and job.ended_at is None:
            job.ended_at = now
            # Proven by Slurm; and no worker is left to send anything.
            session.execute(update(Task).where(Task.fence == fence).values(lost_at=None, delivery=None))
            _end(session, attempt, report, now)
        return attempt.run_id


def is_live(store: Store, fence: int) -> bool:
    """Whether nodes may still join for this attempt."""
    with store.read() as session:
        state = session.scalar(select(Attempt.state).where(Attempt.fence == fence))
        return state is not None and state not in TERMINAL_STATES


def pool_of_node(store: Store, node_id: str) -> str:
    """The pool of a node; empty for a node of ours."""
    with store.read() as session:
        return session.scalar(select(Node.pool).where(Node.id == node_id)) or ""


def waits(
    session: Session, queue: list[ResourceRequest], now: float, silent_after_s: float = SILENT_AFTER_S
) -> Mapping[int, Waits]:
    """Why the queued attempts of Slurm pools wait, by fence, from the last report of each job."""
    fences = [request.fence for request in queue if request.pool]
    query = select(Job, Node).join(Node, Node.id == Job.gateway_id).where(Job.fence.in_(fences))
    jobs = {job.fence: (job, gateway) for job, gateway in session.execute(query)} if fences else {}
    waits_by_fence = {}
    for fence in fences:
        if fence not in jobs:
            waits_by_fence[fence] = Waits(_no_gateway(session))
            continue
        job, gateway = jobs[fence]
        has_no_contact = is_silent(now - gateway.last_seen, silent_after_s)
        prefix = f"no contact with the gateway {gateway.name}; when last heard, " if has_no_contact else ""
        report = _last_report(job)
        waits_by_fence[fence] = Waits(prefix + slurm.waits(report), report.starts_at if report else None)
    return waits_by_fence


def _no_gateway(session: Session) -> str:
    gateways = select(Node.name, Node.protocol).where(Node.pool == GATEWAY, Node.removed_at.is_(None))
    names = [name for name, protocol in session.execute(gateways) if not is_spoken(protocol)]
    if names:
        return f"Slurm: the gateway {as_list(names, MOST_NAMED)} must be upgraded first; `rankzero nodes` says how"
    return "Slurm: no gateway to the cluster is connected; start `rankzero gateway` there"


def _without_gateway(session: Session, now: float) -> dict[int, RunSpec]:
    query = (
        select(Attempt.fence, Run.spec)
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Job, Job.fence == Attempt.fence)
        .where(Attempt.state == State.QUEUED, Job.fence.is_(None), Run.deleted_at.is_(None))
        .where(Run.spec["pool"].as_string() == GATEWAY, func.coalesce(Attempt.not_before, 0.0) <= now)
        .order_by(Attempt.fence)
    )
    return {fence: RunSpec.model_validate(spec) for fence, spec in session.execute(query)}


def _job_request(
    attempt: Attempt,
    spec: dict[str, object],
    secret_of: Callable[[int], str],
    exclude: Collection[str],
    *,
    is_sending: bool,
) -> DesiredJob:
    parsed = RunSpec.model_validate(spec)
    is_over = attempt.state in TERMINAL_STATES and not is_sending
    return DesiredJob(
        run_id=attempt.run_id,
        attempt=attempt.number,
        fence=attempt.fence,
        action="stop" if is_over or attempt.stop_requested_at is not None else "run",
        spec=parsed,
        secret=secret_of(attempt.fence),
        grace_s=DELIVERY_S if is_over else parsed.stop_grace_s + DELIVERY_S,
        exclude=sorted(exclude),
    )


def _last_report(job: Job) -> JobReport | None:
    return JobReport.model_validate(job.said) if job.said is not None else None


def _history_line(previous: JobReport | None, report: JobReport) -> str | None:
    if previous is not None and previous.state == report.state:
        return None
    if report.state == "PENDING":
        return f"submitted to Slurm as job {report.job_id}"
    if report.state == "RUNNING":
        return f"Slurm job {report.job_id} runs on {report.nodes}"
    return f"Slurm job {report.job_id} has ended: {report.state}" if report.has_ended and report.job_id else None


def _end(session: Session, attempt: Attempt, report: JobReport, now: float) -> None:
    """End an attempt whose job has ended, so no process is left: Slurm's state replaces its workers' missing report."""
    if attempt.state in TERMINAL_STATES:
        return
    explanation, is_stop = slurm.end(report), attempt.stop_requested_at is not None
    end_state = State.STOPPED if is_stop else State.FAILED
    reason, message, step = (None, None, None) if is_stop else explanation
    tasks = list(session.scalars(select(Task).where(Task.fence == attempt.fence)))
    for task in tasks:
        if task.state not in TERMINAL_STATES:
            task.state, task.reported_at = end_state, now
            task.reason, task.message, task.next_step = reason, message, step
    session.flush()
    if tasks:
        combine(session, attempt, now)
        return
    attempt.state, attempt.ended_at = end_state, now
    attempt.waiting_for = attempt.expected_start_at = None
    attempt.reason, attempt.message, attempt.next_step = reason, message, step
    add_history(
        session,
        attempt.run_id,
        attempt.number,
        now,
        f"{end_state.value}: {message}" if message else end_state.value,
    )
    carry_on(session, attempt, now)
