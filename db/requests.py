"""Wishes: what people ask for. Nothing here says what is; that is for workers to report."""

from __future__ import annotations

import secrets
import string
from pathlib import PurePosixPath

from sqlalchemy import delete as delete_rows
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from db import fitting
from db.discarding import discard
from db.engine import Store
from db.hosts import known_hosts
from db.masking import masked_text
from db.models import Attempt, Checkpoint, DeletedAttempt, File, HistoryEntry, Node, Run
from db.spec import RUN_ID, RunSpec
from db.states import TERMINAL_STATES, State


class Refused(Exception):
    """A wish that cannot be granted: `field` names what is wrong, the text is one sentence with the rule."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


class NoSuchRun(LookupError):
    """There is no run of that id."""


class NoSuchNode(LookupError):
    """There is no node of that name or id."""


class NoSuchCheck(LookupError):
    """There is no preflight of that id."""


class WrongState(Exception):
    """The run is not in a state in which this can be asked for."""


def submit(store: Store, spec: RunSpec, now: float, remark: str | None = None) -> str:
    """Queue a new run, with a remark for its history; returns its id. Raises Refused when it can never run here."""
    with store.write() as session:
        spec = _known_to_fit(session, spec, now)
        checkpoint_id = _checkpoint_to_resume(session, spec.resume) if spec.resume else None
        run = Run(
            id=_new_run_id(),
            name=spec.name or default_name(spec),
            project=spec.project or "default",
            spec=spec.model_dump(mode="json"),
            created_at=now,
        )
        session.add(run)
        session.flush()
        _open_attempt(session, run.id, 1, checkpoint_id, now)
        note(session, run.id, 1, now, f"launched: {_summary(spec)}")
        if remark:
            note(session, run.id, 1, now, remark)
        return run.id


def request_stop(store: Store, run_id: str, now: float) -> None:
    """Wish that a run ends. Asking again, or for a run that has ended, changes nothing."""
    with store.write() as session:
        attempt = latest_attempt(session, run_id)
        if State(attempt.state).is_terminal or attempt.stop_requested_at is not None:
            return
        attempt.stop_requested_at = now
        note(session, run_id, attempt.number, now, "stop requested")
        if attempt.state == State.QUEUED:
            # No worker knows of it, so there is nobody else to report the end.
            attempt.state, attempt.ended_at = State.STOPPED, now
            attempt.waiting_for = attempt.expected_start_at = None
            attempt.message = "stopped while it was queued"


def resume(store: Store, run_id: str, now: float, checkpoint: str | None = None) -> int:
    """Open the next attempt of an ended run from a checkpoint (default: the latest complete one).

    Without any complete checkpoint it starts from the beginning. Returns the attempt's number."""
    with store.write() as session:
        last = latest_attempt(session, run_id)
        if last.state not in TERMINAL_STATES:
            raise WrongState(f"Run {run_id} is {last.state}; only a run that has ended can be resumed.")
        _known_to_fit(session, RunSpec.model_validate(_run(session, run_id).spec), now, last.number + 1)
        return open_next_attempt(session, run_id, now, checkpoint)


def drain(store: Store, node: str, now: float) -> str:
    """Wish that nothing new starts on a node (its name or id); what runs there goes on. Returns its id."""
    return _set_drain(store, node, now)


def undrain(store: Store, node: str) -> str:
    """Wish that a node gets new runs again. Returns its id."""
    return _set_drain(store, node, None)


def delete(store: Store, run_id: str, now: float) -> tuple[list[int], list[int]]:
    """Forget an ended run and all it wrote; returns the ids of its files and of its checkpoints on disk."""
    with store.write() as session:
        if latest_attempt(session, run_id).state not in TERMINAL_STATES:
            raise WrongState(f"Run {run_id} has not ended; stop it first, then delete it.")
        fences = select(Attempt.fence).where(Attempt.run_id == run_id)
        files = list(session.scalars(select(File.id).where(File.fence.in_(fences))))
        checkpoints = list(session.scalars(select(Checkpoint).where(Checkpoint.fence.in_(fences))))
        discard(session, checkpoints, now)
        rows = session.execute(select(Attempt.fence, Attempt.uid).where(Attempt.run_id == run_id))
        session.add_all([DeletedAttempt(fence=fence, uid=uid) for fence, uid in rows])
        session.execute(delete_rows(Run).where(Run.id == run_id))
        return files, [checkpoint.id for checkpoint in checkpoints]


def open_next_attempt(
    session: Session,
    run_id: str,
    now: float,
    checkpoint: str | None,
    *,
    why: str | None = None,
    restarts: int = 0,
    pause_s: float = 0.0,
) -> int:
    """From a checkpoint (default: the latest complete one), or from the beginning; returns its number.

    What opens it by itself says why, which of the run's restarts it is, and how long it waits before; it keeps its
    turn in the queue."""
    found, before = _find_checkpoint(session, run_id, checkpoint), latest_attempt(session, run_id)
    number = before.number + 1
    attempt = _open_attempt(session, run_id, number, found.id if found else None, now)
    attempt.restarts, attempt.changes = restarts, before.changes  # until it is placed
    if why:
        attempt.turn_since = before.turn_since or before.created_at
    if pause_s:
        attempt.not_before = attempt.expected_start_at = now + pause_s
        attempt.waiting_for = f"waits {pause_s:g} s before it starts again"
    note(session, run_id, number, now, f"{f'{why};' if why else 'resumed'} {_origin(found)}")
    return number


def default_name(spec: RunSpec) -> str:
    """What a run is called when nobody named it: its recipe, module or script."""
    return spec.module or PurePosixPath(spec.entry or spec.target).stem or "run"


def specification(store: Store, run_id: str) -> RunSpec | None:
    """What a run was asked for with its secrets, which people are not shown; None where there is no such run."""
    with store.read() as session:
        run = session.get(Run, run_id) if RUN_ID.fullmatch(run_id) else None
        return None if run is None else RunSpec.model_validate(run.spec)


def latest_attempt(session: Session, run_id: str) -> Attempt:
    """The attempt whose state is the run's. Raises NoSuchRun."""
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc()).limit(1)
    attempt = session.scalars(newest).first()
    if attempt is None:
        raise NoSuchRun(f"There is no run {run_id!r}.")
    return attempt


def node_named(session: Session, node: str) -> Node:
    """A node by its name or id. Raises NoSuchNode."""
    named = select(Node).where(or_(Node.name == node, Node.id == node), Node.removed_at.is_(None))
    found = session.scalars(named.order_by(Node.id != node)).first()
    if found is None:
        raise NoSuchNode(f"There is no node {node!r}.")
    return found


def note(session: Session, run_id: str, attempt: int | None, now: float, text: str) -> None:
    """Add a line to the run's history."""
    session.add(HistoryEntry(run_id=run_id, attempt=attempt, at=now, text=text))


def _set_drain(store: Store, node: str, at: float | None) -> str:
    with store.write() as session:
        found = node_named(session, node)
        if at is None or found.drain_requested_at is None:
            found.drain_requested_at = at
        return found.id


def _run(session: Session, run_id: str) -> Run:
    run = session.get(Run, run_id)
    if run is None:
        raise NoSuchRun(f"There is no run {run_id!r}.")
    return run


def _open_attempt(
    session: Session, run_id: str, number: int, checkpoint_id: int | None, now: float
) -> Attempt:
    attempt = Attempt(
        run_id=run_id,
        number=number,
        created_at=now,
        state=State.QUEUED,
        resume_checkpoint_id=checkpoint_id,
        restarts=0,
    )
    session.add(attempt)
    return attempt


def _origin(checkpoint: Checkpoint | None) -> str:
    if checkpoint is None:
        return "from the beginning: it has no complete checkpoint"
    return (
        f"from {checkpoint.path}"
        if checkpoint.step is None
        else f"from step {checkpoint.step} of {checkpoint.path}"
    )


def _known_to_fit(session: Session, spec: RunSpec, now: float, attempt: int = 1) -> RunSpec:
    """The spec with its devices counted. Raises Refused when the known nodes can never hold it."""
    known = known_hosts(session, now)
    spec = spec.model_copy(update={"gpus_per_node": fitting.devices_per_node(spec, known)})
    if refused := fitting.refusal(spec, known, attempt):
        raise Refused(*refused)
    return spec


def _checkpoint_to_resume(session: Session, resume: str) -> int:
    run_id, _, name = resume.partition(":")
    known = RUN_ID.fullmatch(run_id) and session.get(Run, run_id)
    if not known:
        raise Refused("resume", f"resume: there is no run {run_id!r}; write RUN or RUN:CHECKPOINT.")
    found = _find_checkpoint(session, run_id, name or None)
    if found is None:
        raise Refused("resume", f"resume: run {run_id} has no complete checkpoint yet.")
    return found.id


def _find_checkpoint(session: Session, run_id: str, name: str | None) -> Checkpoint | None:
    """The newest complete checkpoint of that name (or any): by step, and by time where no step is known."""
    complete = (
        select(Checkpoint)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .where(Attempt.run_id == run_id, Checkpoint.complete)
        .order_by(Checkpoint.fence.desc(), func.coalesce(Checkpoint.step, -1).desc())
        .order_by(Checkpoint.written_at.desc(), Checkpoint.id.desc())
    )
    candidates = list(session.scalars(complete))
    if name is None:
        return candidates[0] if candidates else None
    for checkpoint in candidates:
        if name in (checkpoint.path, PurePosixPath(checkpoint.path).name, str(checkpoint.id)):
            return checkpoint
    raise Refused("checkpoint", f"checkpoint: run {run_id} has no complete checkpoint {name!r}.")


def _new_run_id() -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(10))


def _summary(spec: RunSpec) -> str:
    nodes, ranks = _count(spec.nodes, "node", "nodes"), _count(spec.world_size, "rank", "ranks")
    if spec.elastic and spec.fewest_nodes < spec.nodes:
        nodes, ranks = f"{spec.fewest_nodes} to {nodes}", f"at most {ranks}"
    return f"{masked_text(spec.target)} on {nodes}, {ranks}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
