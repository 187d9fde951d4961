"""Change how a run is named, sorted and described."""

from __future__ import annotations

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuchRun
from db.history import add_history
from db.models import Run, RunTag
from domain.errors import InvalidRequest
from domain.run_edit import MOST_TAGS, RunEdit


def edit(store: Store, run_id: str, change: RunEdit, now: float) -> None:
    """Apply a change. Raises NoSuchRun, InvalidRequest where the run would have too many tags."""
    with store.write() as session:
        run = session.get(Run, run_id)
        if run is None:
            raise NoSuchRun(f"There is no run {run_id!r}.")
        if change.baseline:
            _leave_baseline(session, change.project or run.project, run_id)
        for line in _apply(run, change, now):
            add_history(session, run_id, None, now, line)
        _change_tags(session, run_id, change)


def _apply(run: Run, change: RunEdit, now: float) -> list[str]:
    """Set the columns and return the lines for the run's history."""
    lines = []
    if change.name and change.name != run.name:
        lines.append(f"renamed from {run.name} to {change.name}")
        run.name = change.name
    if change.project and change.project != run.project:
        lines.append(f"moved from project {run.project} to {change.project}")
        run.project, run.baseline_at = change.project, None
    if change.note is not None:
        run.note = change.note or None
    if change.archived is not None and change.archived != (run.archived_at is not None):
        lines.append("archived" if change.archived else "no longer archived")
        run.archived_at = now if change.archived else None
    if change.pinned is not None:
        run.pinned_at = (run.pinned_at or now) if change.pinned else None
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


def _change_tags(session: Session, run_id: str, change: RunEdit) -> None:
    present = set(session.scalars(select(RunTag.tag).where(RunTag.run_id == run_id)))
    removed, added = present & set(change.remove_tags), set(change.add_tags) - present
    if len((present - removed) | added) > MOST_TAGS:
        raise InvalidRequest("add_tags", f"add_tags: a run has at most {MOST_TAGS} tags; remove some first.")
    if removed:
        session.execute(delete(RunTag).where(RunTag.run_id == run_id, RunTag.tag.in_(removed)))
    session.add_all(RunTag(run_id=run_id, tag=tag) for tag in sorted(added))
