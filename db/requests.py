"""Wishes: what people ask for. Nothing here says what is; that is for workers to report."""

from __future__ import annotations

import secrets
import string
from pathlib import PurePosixPath

from sqlalchemy import delete as delete_rows
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, Checkpoint, File, HistoryEntry, Node, Part, Run
from db.spec import RUN_ID, RunSpec
from db.states import TERMINAL_STATES, State


class Refused(Exception):
    """A wish that cannot be granted: `field` names what is wrong, the text is one sentence with the rule."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


class NoSuchRun(LookupError):
    """There is no run of that id."""


class WrongState(Exception):
    """The run is not in a state in which this can be asked for."""


def submit(store: Store, spec: RunSpec, now: float, remark: str | None = None) -> str:
    """Queue a new run, with a remark for its history; returns its id. Raises Refused when it can never run here."""
    with store.write() as session:
        spec = _with_devices_counted(session, spec)
        _refuse_what_never_fits(session, spec)
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
            attempt.state, attempt.ended_at, attempt.waiting_for = State.STOPPED, now, None
            attempt.message = "stopped while it was queued"


def resume(store: Store, run_id: str, now: float, checkpoint: str | None = None) -> int:
    """Open the next attempt of an ended run from a checkpoint (default: the latest complete one).

    Without any complete checkpoint it starts from the beginning. Returns the attempt's number."""
    with store.write() as session:
        last = latest_attempt(session, run_id)
        if last.state not in TERMINAL_STATES:
            raise WrongState(f"Run {run_id} is {last.state}; only a run that has ended can be resumed.")
        spec = RunSpec.model_validate(_run(session, run_id).spec)
        _refuse_what_never_fits(session, spec)
        return open_next_attempt(session, run_id, now, checkpoint)


def delete(store: Store, run_id: str) -> tuple[list[int], list[int]]:
    """Forget an ended run and all it wrote; returns the ids of its files and of its checkpoints on disk."""
    with store.write() as session:
        if latest_attempt(session, run_id).state not in TERMINAL_STATES:
            raise WrongState(f"Run {run_id} has not ended; stop it first, then delete it.")
        fences = select(Attempt.fence).where(Attempt.run_id == run_id)
        files = list(session.scalars(select(File.id).where(File.fence.in_(fences))))
        checkpoints = list(session.scalars(select(Checkpoint.id).where(Checkpoint.fence.in_(fences))))
        session.execute(delete_rows(Run).where(Run.id == run_id))
        return files, checkpoints


def open_next_attempt(session: Session, run_id: str, now: float, checkpoint: str | None) -> int:
    """From a checkpoint (default: the latest complete one), or from the beginning; returns its number."""
    found = _find_checkpoint(session, run_id, checkpoint)
    number = latest_attempt(session, run_id).number + 1
    _open_attempt(session, run_id, number, found.id if found else None, now)
    origin = f"from {found.path}" if found else "from the beginning: it has no complete checkpoint"
    note(session, run_id, number, now, f"resumed {origin}")
    return number


def default_name(spec: RunSpec) -> str:
    """What a run is called when nobody named it: its recipe, module or script."""
    return spec.module or PurePosixPath(spec.entry or spec.target).stem or "run"


def latest_attempt(session: Session, run_id: str) -> Attempt:
    """The attempt whose state is the run's. Raises NoSuchRun."""
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc()).limit(1)
    attempt = session.scalars(newest).first()
    if attempt is None:
        raise NoSuchRun(f"There is no run {run_id!r}.")
    return attempt


def note(session: Session, run_id: str, attempt: int | None, now: float, text: str) -> None:
    """Add a line to the run's history."""
    session.add(HistoryEntry(run_id=run_id, attempt=attempt, at=now, text=text))


def _run(session: Session, run_id: str) -> Run:
    run = session.get(Run, run_id)
    if run is None:
        raise NoSuchRun(f"There is no run {run_id!r}.")
    return run


def _open_attempt(session: Session, run_id: str, number: int, checkpoint_id: int | None, now: float) -> None:
    session.add(
        Attempt(
            run_id=run_id,
            number=number,
            created_at=now,
            state=State.QUEUED,
            resume_checkpoint_id=checkpoint_id,
        )
    )


def _with_devices_counted(session: Session, spec: RunSpec) -> RunSpec:
    """`gpus_per_node` None becomes what the emptiest node has free, or has at all when none is free."""
    if spec.gpus_per_node is not None:
        return spec
    if spec.strategy == "single":
        return spec.model_copy(update={"gpus_per_node": 1})
    free, total = free_and_total_slots(session)
    count = max(free.values(), default=0) or max(total.values(), default=0) or 1
    return spec.model_copy(update={"gpus_per_node": count})


def free_and_total_slots(session: Session) -> tuple[dict[str, int], dict[str, int]]:
    """Slots per node id: those nobody uses, and all."""
    total = {node.id: len(node.devices) for node in session.scalars(select(Node))}
    live = select(Part).where(Part.state.not_in(TERMINAL_STATES))
    free = dict(total)
    for part in session.scalars(live):
        free[part.node_id] -= len(part.devices)
    return free, total


def _refuse_what_never_fits(session: Session, spec: RunSpec) -> None:
    if spec.wait_for_nodes:
        return
    per_node = spec.gpus_per_node or 1
    sizes = [len(node.devices) for node in session.scalars(select(Node))]
    able = sum(size >= per_node for size in sizes)
    if able >= spec.nodes:
        return
    field = "gpus_per_node" if spec.nodes <= len(sizes) else "nodes"
    known = f"{_count(len(sizes), 'node is', 'nodes are')} registered"
    largest = f", the largest with {_count(max(sizes), 'slot', 'slots')}" if sizes else ""
    need = f"{_count(spec.nodes, 'node', 'nodes')} with {_count(per_node, 'slot', 'slots')} each"
    raise Refused(
        field,
        f"{field}: the run needs {need}, but {known}{largest}. Start another worker, lower --nodes or"
        " --gpus-per-node, or launch with --wait-for-nodes.",
    )


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
    ranks = _count(spec.world_size, "rank", "ranks")
    return f"{spec.target} on {_count(spec.nodes, 'node', 'nodes')}, {ranks}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
