"""What follows from facts by a run's own policy, so that nobody has to be awake for it."""

from __future__ import annotations

from sqlalchemy import select

from db.engine import Store
from db.models import Attempt, Run
from db.requests import latest_attempt, note, open_next_attempt
from db.spec import RunSpec
from db.states import Reason, State

HANGS_IN_A_ROW = 3
"""A run that hangs so often in a row would do so for ever."""


def carry_on_after_hang(store: Store, fence: int, now: float) -> int | None:
    """Open the next attempt of a run that was ended because it hung, if its spec says so; its number."""
    with store.write() as session:
        attempt = session.get(Attempt, fence)
        if attempt is None or attempt.state != State.FAILED or attempt.reason != Reason.HUNG:
            return None
        if latest_attempt(session, attempt.run_id).fence != fence:
            return None
        spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
        if spec.on_hang != "resume":
            return None
        reasons = session.scalars(
            select(Attempt.reason).where(Attempt.run_id == attempt.run_id).order_by(Attempt.number.desc())
        ).all()
        if len(reasons) >= HANGS_IN_A_ROW and set(reasons[:HANGS_IN_A_ROW]) == {Reason.HUNG}:
            text = f"not resumed: it hung {HANGS_IN_A_ROW} times in a row"
            note(session, attempt.run_id, attempt.number, now, text)
            return None
        return open_next_attempt(session, attempt.run_id, now, None)
