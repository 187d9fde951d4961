"""What follows from facts by a run's own policy, so that nobody has to be awake for it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, HistoryEntry, Run
from db.requests import latest_attempt, note, open_next_attempt
from db.spec import RunSpec
from db.states import Reason, State

HANGS_IN_A_ROW = 3
"""A run that hangs so often in a row would do so for ever."""


def carry_on_after_hang(store: Store, fence: int, now: float) -> int | None:
    """Open the next attempt of a run that was ended because it hung, if its spec says so; its number."""
    with store.read() as session:  # most reports are of something else, and cost no turn of the writer
        if _hung(session, fence) is None:
            return None
    with store.write() as session:
        attempt = _hung(session, fence)
        if attempt is None or latest_attempt(session, attempt.run_id).fence != fence:
            return None
        spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
        if spec.on_hang != "resume":
            return None
        if _always_hangs(session, attempt.run_id):
            _note_once(session, attempt, now, f"not resumed: it hung {HANGS_IN_A_ROW} times in a row")
            return None
        return open_next_attempt(session, attempt.run_id, now, None)


def _hung(session: Session, fence: int) -> Attempt | None:
    attempt = session.get(Attempt, fence)
    has_hung = attempt is not None and attempt.state == State.FAILED and attempt.reason == Reason.HUNG
    return attempt if has_hung else None


def _always_hangs(session: Session, run_id: str) -> bool:
    newest = select(Attempt.reason).where(Attempt.run_id == run_id).order_by(Attempt.number.desc())
    reasons = session.scalars(newest.limit(HANGS_IN_A_ROW)).all()
    return len(reasons) == HANGS_IN_A_ROW and set(reasons) == {Reason.HUNG}


def _note_once(session: Session, attempt: Attempt, now: float, text: str) -> None:
    """The end of an attempt may be reported again."""
    same = select(HistoryEntry.id).filter_by(run_id=attempt.run_id, attempt=attempt.number, text=text)
    if session.scalars(same).first() is None:
        note(session, attempt.run_id, attempt.number, now, text)
