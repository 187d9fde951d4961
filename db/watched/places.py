"""Give processes that watch a command their places in runs: the first one makes the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from db import acting
from db.attempts.attempt_state import combine
from db.attempts.liveness import last_heartbeat
from db.attempts.lost_nodes import write_off_lost
from db.attempts.new_attempt import open_attempt
from db.engine import Store
from db.lookups import add_history, latest_attempt
from db.models import Attempt, Node, Run, RunTag, Task, WatchedRun, WatchedTask, new_id
from db.people import audit
from db.people.ownership import DEFAULT_PROJECT, project_of
from db.watched import guests, processes
from domain.liveness import LOST_AFTER_S
from domain.masking.masking import masked_args
from domain.messages import TERMINAL_STATES, State
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.watching import described
from domain.watching.messages import WatchRequest
from domain.watching.places import Latest, PlaceDecision, PlaceOutcome, TakenProcess, decide


@dataclass(frozen=True)
class TakenPlace:
    """The place of a process in an attempt, or why it has none."""

    place: Literal["joined", "waits", "refused"]
    message: str = ""
    run_id: str = ""
    name: str = ""
    """The run's."""
    fence: int = 0
    node_id: str = ""
    node_token: str = ""


def take_place(store: Store, request: WatchRequest, now: float, lost_after_s: float = LOST_AFTER_S) -> TakenPlace:
    """Give a process its place, the same one whenever it asks again; of two that come at once one makes the run.

    Raises Denied."""
    request = _masked(request)
    with store.write() as session:
        own_task = session.scalars(select(WatchedTask).where(WatchedTask.watch_id == request.watch_id)).first()
        if own_task is not None:
            return _again(session, own_task, request, now)
        acting.rights().check(Action.ADD, request.project or DEFAULT_PROJECT)
        attempt = _latest_of_key(session, request)
        if attempt is not None and request.is_lasting:
            write_off_lost(session, attempt, now, lost_after_s)
        decision = decide(request, None if attempt is None else _latest(session, attempt, now))
        if decision.outcome in (PlaceOutcome.WAIT, PlaceOutcome.REFUSE):
            return TakenPlace("waits" if decision.outcome is PlaceOutcome.WAIT else "refused", decision.message)
        return _placed(session, request, _attempt_for(session, request, decision, attempt, now), decision.process, now)


def _masked(request: WatchRequest) -> WatchRequest:
    """The request without secrets in its command, which everybody who sees the run can read."""
    command = request.command.model_copy(update={"argv": masked_args(request.command.argv)})
    return request.model_copy(update={"command": command})


def _again(session: Session, own_task: WatchedTask, request: WatchRequest, now: float) -> TakenPlace:
    """Give a process its place again, whatever became of it: it may have been away for days."""
    attempt = session.get_one(Attempt, own_task.fence)
    run = session.get_one(Run, attempt.run_id)
    if run.by != acting.rights().by or not acting.rights().may(Action.ADD, run.project):
        return TakenPlace(
            "refused", "This command is watched by somebody else: start it again to watch it as your own."
        )
    if run.deleted_at is not None:
        return TakenPlace("refused", f"Run {run.id} was deleted; `rankzero restore {run.id}` brings it back.")
    task = session.get_one(Task, (own_task.fence, own_task.node_rank))
    guest = guests.welcome(session, own_task.fence, request, now, session.get_one(Node, task.node_id))
    return TakenPlace("joined", "", run.id, run.name, own_task.fence, guest.node_id, guest.token)


def _latest_of_key(session: Session, request: WatchRequest) -> Attempt | None:
    """The latest attempt of the person's newest run with this key in the project."""
    if request.key is None:
        return None
    query = (
        select(Attempt)
        .join(WatchedRun, WatchedRun.run_id == Attempt.run_id)
        .join(Run, Run.id == Attempt.run_id)
        .where(WatchedRun.key == request.key, Run.deleted_at.is_(None))
        .where(Run.by.is_not_distinct_from(acting.rights().by), Run.project == (request.project or DEFAULT_PROJECT))
        .order_by(Attempt.fence.desc())
    )
    return session.scalars(query.limit(1)).first()


def _latest(session: Session, attempt: Attempt, now: float) -> Latest:
    query = (
        select(WatchedTask, Task.state, Node.id, Node.last_seen)
        .join(Task, (Task.fence == WatchedTask.fence) & (Task.node_rank == WatchedTask.node_rank))
        .join(Node, Node.id == Task.node_id)
        .where(WatchedTask.fence == attempt.fence)
        .order_by(WatchedTask.node_rank)
    )
    taken = [
        TakenProcess(
            row.node_rank,
            row.host,
            row.pid,
            has_ended=state in TERMINAL_STATES,
            silent_s=now - last_heartbeat(session, node_id, last_seen),
        )
        for row, state, node_id, last_seen in session.execute(query)
    ]
    ended_at = (attempt.ended_at or now) if attempt.state in TERMINAL_STATES else None
    return Latest(attempt.run_id, attempt.number, ended_at, taken)


def _attempt_for(
    session: Session, request: WatchRequest, decision: PlaceDecision, latest: Attempt | None, now: float
) -> Attempt:
    """The attempt that a process joins: the latest one, the next one, or the first one of a new run."""
    if latest is not None and decision.outcome is PlaceOutcome.JOIN:
        text = f"process {decision.process} joined from {request.command.host}"
        add_history(session, latest.run_id, latest.number, now, text)
        return latest
    if latest is not None and decision.outcome is PlaceOutcome.NEXT_ATTEMPT:
        attempt = _open(session, latest.run_id, latest_attempt(session, latest.run_id).number + 1, request, now)
        run = session.get_one(Run, latest.run_id)
    else:
        run = _new_run(session, request, now)
        attempt = _open(session, run.id, 1, request, now)
    command = request.command
    again = " again" if attempt.number > 1 else ""
    add_history(session, run.id, attempt.number, now, f"watched{again}: started on {command.host} by {command.account}")
    audit.record_of_run(session, AuditAction.WATCHED, run, {"host": command.host})
    return attempt


def _open(session: Session, run_id: str, number: int, request: WatchRequest, now: float) -> Attempt:
    """Open an attempt that has begun already, perhaps long ago; a host whose clock is ahead began it now."""
    began_at = min(request.started_at, now)
    attempt = open_attempt(session, run_id, number, None, began_at)
    attempt.state = State.STARTING
    attempt.placed_at = attempt.preflighted_at = attempt.started_at = began_at
    session.flush()
    return attempt


def _new_run(session: Session, request: WatchRequest, now: float) -> Run:
    spec, command, rights = described.spec_of(request), request.command, acting.rights()
    run = Run(
        id=request.run_id if session.get(Run, request.run_id) is None else new_id(),
        name=described.name_of(request, spec),
        project=project_of(spec),
        spec=spec.model_dump(mode="json"),
        created_at=min(request.started_at, now),
        by=rights.by,
        via=rights.via,
    )
    session.add(run)
    session.flush()
    session.add_all(RunTag(run_id=run.id, tag=tag) for tag in dict.fromkeys(request.tags))
    session.add(
        WatchedRun(
            run_id=run.id,
            key=request.key,
            is_lasting=request.is_lasting,
            command=command.argv,
            cwd=command.cwd,
            host=command.host,
            account=command.account,
            scheduler=command.scheduler,
            look_only=request.look_only,
        )
    )
    return run


def _placed(session: Session, request: WatchRequest, attempt: Attempt, process: int, now: float) -> TakenPlace:
    """Make the task of a process and its guest node."""
    guest = guests.welcome(session, attempt.fence, request, now)
    kinds = {device.kind for device in request.facts.devices}
    task = Task(fence=attempt.fence, node_rank=process, node_id=guest.node_id, state=State.STARTING)
    task.device_kind, task.devices = "cuda" if "cuda" in kinds else "cpu", _devices(request)
    command = request.command
    session.add_all(
        (
            task,
            WatchedTask(
                fence=attempt.fence,
                node_rank=process,
                watch_id=request.watch_id,
                host=command.host,
                pid=command.pid,
                began_at=request.started_at,
                ranks=request.ranks_here,
                world_size=request.world_size,
            ),
        )
    )
    session.flush()
    processes.compare(session, attempt, now)
    if attempt.state in TERMINAL_STATES:  # a process that is heard of late still belongs to it
        attempt.ended_at = attempt.reason = attempt.message = attempt.next_step = attempt.error = None
        combine(session, attempt, now)
    run = session.get_one(Run, attempt.run_id)
    return TakenPlace("joined", "", run.id, run.name, attempt.fence, guest.node_id, guest.token)


def _devices(request: WatchRequest) -> list[str]:
    """The devices that the ranks of a process use: as many GPUs as it starts ranks, by default all that it sees."""
    gpus = [device.id for device in request.facts.devices if device.kind == "cuda"]
    slots = [device.id for device in request.facts.devices if device.kind == "cpu"]
    return gpus[: request.ranks_here] if gpus else slots[: request.ranks_here or 1]
