"""The order of runs by urgency, and the number of runs in a state."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, case, func, select

from db.engine import Store
from db.models import Attempt
from domain.attention import FAILED_LATELY_S
from domain.messages import LIVE_STATES, State


def urgency(now: float) -> ColumnElement[int]:
    """A sort expression for latest attempts: live ones first, then those that failed lately."""
    has_failed_lately = and_(Attempt.state == State.FAILED, Attempt.ended_at > now - FAILED_LATELY_S)
    return case((Attempt.state.in_(LIVE_STATES), 0), (has_failed_lately, 1), else_=2)


def number_in(store: Store, state: State) -> int:
    """The number of runs in a state."""
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    query = select(func.count()).select_from(Attempt).where(Attempt.fence.in_(newest), Attempt.state == state)
    with store.read() as session:
        return session.scalar(query) or 0
