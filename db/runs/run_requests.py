"""What people want of runs: launched, stopped, resumed, edited."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, NamedTuple

from sqlalchemy import delete as delete_rows
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db import acting
from db.attempts import deliveries
from db.attempts.new_attempt import find_checkpoint, open_attempt, open_next_attempt
from db.budgets import charges
from db.engine import Store
from db.exceptions import WrongState
from db.lookups import add_history, latest_attempt
from db.models import Attempt, ImportedRun, Run, RunTag, Study, StudyTrial, new_id
from db.people import audit, notices
from db.people.ownership import project_of
from db.people.permission import permitted_run
from db.people.users import by_whom
from db.people.visibility import is_private, visible_runs
from db.scheduling.node_state import registered_lately, registered_nodes
from db.watched import watched_runs
from domain.choices import RUN_ID, ExportFormat
from domain.masking.masking import has_mask, masked_text
from domain.messages import TERMINAL_STATES, State
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.recovery import UnclearCheckpoint
from domain.requests.errors import InvalidRequest, NoSuchReference
from domain.scheduling.fit import fit
from domain.spec import MOST_TAGS, RunEdit, RunSpec
from domain.text.formats import plural


class NewTrial(NamedTuple):
    """A trial of a study, by its number, with its parameters."""

    study_id: str
    number: int
    params: dict[str, Any]


def submit(
    store: Store,
    spec: RunSpec,
    now: float,
    remark: str | None = None,
    part_of: NewTrial | None = None,
    expected_s: float | None = None,
) -> str:
    """Queue a new run with a complete spec, and a remark for its history; return its id.

    `part_of`: the trial of a study that it is; `expected_s`: how long it will take, for a budget.
    Raises InvalidRequest when it can never run here, WrongState where its study is to end, OverBudget."""
    fits_here = fit(spec, registered_lately(store, now)).refusal is None
    with store.write() as session:
        if not fits_here:  # perhaps on a node that has just joined
            _check_fits(session, spec, now)
        if part_of:
            _check_goes_on(session, part_of)
        checkpoint_id = _checkpoint_to_resume(session, spec.resume) if spec.resume else None
        run = Run(
            id=new_id(),
            name=spec.name or default_name(spec),
            project=project_of(spec),
            spec=spec.model_dump(mode="json"),
            created_at=now,
            by=acting.rights().by,
            via=acting.rights().via,
        )
        session.add(run)
        session.flush()
        charge = charges.of_launch(session, run, spec, expected_s)
        open_attempt(session, run.id, 1, checkpoint_id, now, charge)
        add_history(session, run.id, 1, now, f"launched: {_summary(spec)}")
        audit.record_of_run(session, AuditAction.LAUNCHED, run)
        if part_of:
            session.add(StudyTrial(run_id=run.id, rung=0, **part_of._asdict()))
        if remark:
            add_history(session, run.id, 1, now, remark)
        return run.id


def request_stop(store: Store, run_id: str, now: float, why: str | None = None, reason: str | None = None) -> None:
    """Request the end of a run; of an ended one, that of the sending of what it has left.

    `reason`: a person's own words, which reach the run's owner with that person's name; `why`: a program's reason.
    A repeated request changes nothing. Raises NoSuchRun, Denied, WrongState for a run that is only looked at."""
    with store.write() as session:
        run, attempt = permitted_run(session, Action.STOP, run_id), latest_attempt(session, run_id)
        if State(attempt.state).is_terminal:
            _end_delivery(session, run, attempt, now)
        elif attempt.stop_requested_at is None:
            watched_runs.check_stoppable(session, attempt, now)
            _stop(session, run, attempt, now, why, reason)


def _stop(session: Session, run: Run, attempt: Attempt, now: float, why: str | None, reason: str | None) -> None:
    by = acting.rights().by
    end(session, attempt, now, reason or why, by_whom(session, f"Stopped: {reason}", by) if reason else None)
    if by is not None and run.by not in (None, by):
        words = f": {reason}" if reason else "."
        notices.record(session, run, f"{by} stopped your run {run.name}{words}", now)


def end_sending(store: Store, run_id: str, now: float) -> None:
    """End the sending of what a run's ended attempts have left; its next attempt, if there is one, continues.

    Raises NoSuchRun, Denied."""
    with store.write() as session:
        run = permitted_run(session, Action.STOP, run_id)
        _end_delivery(session, run, latest_attempt(session, run_id), now)


def _end_delivery(session: Session, run: Run, attempt: Attempt, now: float) -> None:
    """End the sending of what an ended run has left: it stays on its nodes."""
    if deliveries.end(session, run.id, now):
        add_history(session, run.id, attempt.number, now, "end of sending requested: the rest stays on its node")
        audit.record_of_run(session, AuditAction.STOPPED, run, {"why": "end of sending"})


def end(session: Session, attempt: Attempt, now: float, why: str | None, message: str | None = None) -> None:
    """Request the end of an attempt within a transaction; `message` is the sentence that its page shows."""
    if State(attempt.state).is_terminal or attempt.stop_requested_at is not None:
        return
    attempt.stop_requested_at, attempt.end_message = now, message or attempt.end_message
    attempt.stop_requested_by = acting.rights().by
    words = f"stop requested: {why}" if why else "stop requested"
    add_history(session, attempt.run_id, attempt.number, now, words)
    audit.record_of_run(session, AuditAction.STOPPED, session.get_one(Run, attempt.run_id), {"why": why} if why else {})
    if attempt.state == State.QUEUED:
        # No worker knows of it, so none would report the end.
        attempt.state, attempt.ended_at = State.STOPPED, now
        attempt.waiting_for = attempt.expected_start_at = None
        queued = by_whom(session, "stopped while it was queued", attempt.stop_requested_by)
        attempt.message = message or queued


def resume(store: Store, run_id: str, now: float, checkpoint: str | None = None) -> int:
    """Open the next attempt of an ended run from a checkpoint (default: the latest complete one).

    Without any complete checkpoint it starts from the beginning. Returns the attempt's number.
    Raises NoSuchRun, WrongState, InvalidRequest, Denied."""
    with store.write() as session:
        return reopen(session, run_id, now, checkpoint)


def reopen(session: Session, run_id: str, now: float, checkpoint: str | None = None, why: str | None = None) -> int:
    """Resume an ended run within a transaction, for the reason `why` if no person requested it.

    Raises NoSuchRun, WrongState, InvalidRequest, Denied."""
    run, last = permitted_run(session, Action.STEER, run_id), latest_attempt(session, run_id)
    if last.state not in TERMINAL_STATES:
        raise WrongState(f"Run {run_id} is {last.state}; only ended runs can be resumed.")
    _check_trained_here(session, run)
    _check_fits(session, RunSpec.model_validate(run.spec), now, last.number + 1)
    audit.record_of_run(session, AuditAction.RESUMED, run, {"why": why} if why else {})
    return open_next_attempt(session, run_id, now, checkpoint, why=why)


def default_name(spec: RunSpec) -> str:
    """The default name of a run: its recipe, module or script."""
    return spec.module or PurePosixPath(spec.entry or spec.target).stem or "run"


def specification(store: Store, run_id: str) -> RunSpec | None:
    """A run's spec including its secrets, which must not be shown.

    None where they are not those of the actor, or there is no such run: an admin may resume another's run, but in
    another program its values would be revealed."""
    rights = acting.rights()
    with store.read() as session:
        run = session.get(Run, run_id) if RUN_ID.fullmatch(run_id) else None
        if run is None or not (rights.holds_values_of(run.by) and rights.may(Action.ACT, run.project, run.by)):
            return None
        return RunSpec.model_validate(run.spec)


def check_launched_here(store: Store, run_id: str) -> None:
    """Refuse to launch again what somebody started elsewhere, with the command that does. Raises WrongState."""
    with store.read() as session:
        watched_runs.check_launched_here(session, run_id)


def _check_trained_here(session: Session, run: Run) -> None:
    watched_runs.check_launched_here(session, run.id)
    imported = session.get(ImportedRun, run.id)
    if imported and imported.format == ExportFormat.ARCHIVE:
        if has_mask(RunSpec.model_validate(run.spec)):
            raise WrongState(
                f"Run {run.id} was imported without its secrets, which no archive holds, so it cannot be resumed. "
                "Launch it again, and enter them."
            )
    elif imported:
        raise WrongState(
            f"Run {run.id} was imported ({imported.format}): its code and checkpoints are not here, so it cannot "
            "be resumed. Launch its script as a new run."
        )


def _check_fits(session: Session, spec: RunSpec, now: float, attempt: int = 1) -> None:
    """Raise InvalidRequest when an attempt can never run on the registered nodes."""
    if refusal := fit(spec, registered_nodes(session, now), attempt).refusal:
        raise InvalidRequest(*refusal)


def check_resume(store: Store, resume: str) -> None:
    """Check that the actor may resume from RUN or RUN:CHECKPOINT. Raises NoSuchReference, InvalidRequest."""
    with store.read() as session:
        _checkpoint_to_resume(session, resume)


def _checkpoint_to_resume(session: Session, resume: str) -> int:
    run_id, _, name = resume.partition(":")
    exists = RUN_ID.fullmatch(run_id) and session.scalar(select(Run.id).where(Run.id == run_id, visible_runs()))
    if not exists:
        raise NoSuchReference("resume", f"resume: there is no run {run_id!r}; write RUN or RUN:CHECKPOINT.")
    try:
        checkpoint = find_checkpoint(session, run_id, name or None)
    except UnclearCheckpoint as unclear:
        raise InvalidRequest("resume", str(unclear)) from unclear
    if checkpoint is None:
        raise InvalidRequest("resume", f"resume: run {run_id} has no complete checkpoint yet.")
    return checkpoint.id


def _check_goes_on(session: Session, part_of: NewTrial) -> None:
    """Raise WrongState where somebody asked the study to end since its next run was decided on."""
    study = session.get(Study, part_of.study_id)
    if study is None or study.stop_requested_at is not None or study.ended_at is not None:
        raise WrongState("It was asked to end: no more of its runs are launched.")


def _summary(spec: RunSpec) -> str:
    nodes, ranks = plural(spec.nodes, "node"), plural(spec.world_size, "rank")
    if spec.elastic and spec.fewest_nodes < spec.nodes:
        nodes, ranks = f"{spec.fewest_nodes} to {nodes}", f"at most {ranks}"
    return f"{masked_text(spec.target)} on {nodes}, {ranks}"


def edit(store: Store, run_id: str, change: RunEdit, now: float) -> None:
    """Apply a change. Raises NoSuchRun, Denied, InvalidRequest where the run would have too many tags."""
    with store.write() as session:
        run = permitted_run(session, Action.STEER, run_id)
        if change.project or change.baseline is not None:
            acting.rights().check(Action.ACT, change.project or run.project, run.by, run.token_id)
        if change.baseline:
            _leave_baseline(session, change.project or run.project, run_id)
        origin = "a private project" if is_private(session, run) else f"project {run.project}"
        for line in _apply_edit(run, change, now, origin) + _change_tags(session, run_id, change):
            add_history(session, run_id, None, now, line)
        fields = sorted(change.model_dump(exclude_unset=True, exclude_defaults=True))
        audit.record_of_run(session, AuditAction.EDITED, run, {"fields": fields})


def _apply_edit(run: Run, change: RunEdit, now: float, origin: str) -> list[str]:
    """Set the columns and return the lines for the run's history; `origin`: its project, as its new one may name it."""
    lines = []
    if change.name and change.name != run.name:
        lines.append(f"renamed from {run.name} to {change.name}")
        run.name = change.name
    if change.project and change.project != run.project:
        lines.append(f"moved from {origin} to {change.project}")
        run.project, run.baseline_at = change.project, None
    if change.note is not None and change.note != (run.note or ""):
        lines.append("note written" if change.note else "note removed")
        run.note = change.note or None
    if change.archived is not None and change.archived != (run.archived_at is not None):
        lines.append("archived" if change.archived else "no longer archived")
        run.archived_at = now if change.archived else None
    if change.pinned is not None and change.pinned != (run.pinned_at is not None):
        lines.append("pinned" if change.pinned else "no longer pinned")
        run.pinned_at = now if change.pinned else None
    if change.baseline is not None and change.baseline != (run.baseline_at is not None):
        lines.append(f"{'' if change.baseline else 'no longer '}the baseline of project {run.project}")
        run.baseline_at = now if change.baseline else None
    if change.printed_pattern is not None and change.printed_pattern != (_pattern_of(run) or ""):
        lines.append(f"printed lines are read by {change.printed_pattern or 'the rules alone'}")
        run.spec = {**run.spec, "printed_pattern": change.printed_pattern or None}
    return lines


def _pattern_of(run: Run) -> str | None:
    pattern: str | None = run.spec.get("printed_pattern")
    return pattern


def _leave_baseline(session: Session, project: str, run_id: str) -> None:
    """Let no other run be the baseline of the project: there is one at most."""
    others = update(Run).where(Run.project == project, Run.id != run_id)
    session.execute(others.values(baseline_at=None))


def _change_tags(session: Session, run_id: str, change: RunEdit) -> list[str]:
    """Store the tags; returns the line for the run's history, if any changed."""
    present = set(session.scalars(select(RunTag.tag).where(RunTag.run_id == run_id)))
    removed, added = present & set(change.remove_tags), set(change.add_tags) - present
    if len((present - removed) | added) > MOST_TAGS:
        raise InvalidRequest("add_tags", f"add_tags: a run has at most {MOST_TAGS} tags; remove some first.")
    if removed:
        session.execute(delete_rows(RunTag).where(RunTag.run_id == run_id, RunTag.tag.in_(removed)))
    session.add_all(RunTag(run_id=run_id, tag=tag) for tag in sorted(added))
    signs = [f"+{tag}" for tag in sorted(added)] + [f"-{tag}" for tag in sorted(removed)]
    return [f"tags {' '.join(signs)}"] if signs else []
