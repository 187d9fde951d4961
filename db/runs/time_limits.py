"""End runs at a checkpoint that have trained for the time, or used up the budget, of the token that launched them."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from db.attempts.new_attempt import by_policy
from db.budgets import charges
from db.engine import Store
from db.lookups import add_history
from db.models import AccessToken, Attempt, Charge, Checkpoint, HistoryEntry, Run
from db.runs.run_requests import end
from domain.agents import budget
from domain.messages import State
from domain.text.formats import time_span

TOKEN = "a token's budget"
"""What the history and the audit log name as the one that ends runs."""
_CHARGED = (
    select(Attempt, Charge, Run.longest_s, AccessToken)
    .join(Charge, Charge.fence == Attempt.fence)
    .join(Run, Run.id == Attempt.run_id)
    .outerjoin(AccessToken, AccessToken.id == Charge.token_id)
    .where(Attempt.state == State.RUNNING, Attempt.started_at.is_not(None), Attempt.stop_requested_at.is_(None))
    .where(Attempt.end_requested_at.is_(None), Attempt.resize_requested_at.is_(None))
)
"""Built once: it runs every second."""


class Charged(NamedTuple):
    """A running attempt, what it is charged, and what it may take."""

    attempt: Attempt
    charge: Charge
    longest_s: float | None
    """What its run may train in all."""
    token: AccessToken | None
    """None: it ended so long ago that it was forgotten."""
    trained_s: float

    @property
    def payer(self) -> str:
        """The token's name, for people."""
        return f"token {self.token.name}" if self.token is not None else "a token that has ended"


class LimitDecision(NamedTuple):
    """What is done to an attempt."""

    ends: bool
    sentence: str
    """Why and where it ends, or the line for its history."""


def enforce(store: Store, now: float) -> list[str]:
    """End the attempts that are over their time and have a checkpoint since; return the ids of runs that changed.

    Where none comes within ten minutes, or twice the usual time between two, they end without. A run that has trained
    for 95 % of its time gets a line in its history."""
    with store.read() as session:
        due = [one.attempt.fence for one in _charged(session, now) if _decide(session, one, now) is not None]
    if not due:
        return []
    with store.write() as session:
        changed = [one for one in _charged(session, now) if one.attempt.fence in due]
        return [one.attempt.run_id for one in changed if _carry_out(session, one, now)]


def _charged(session: Session, now: float) -> list[Charged]:
    return [_with_limit(session, row, now) for row in session.execute(_CHARGED)]


def _with_limit(session: Session, row: Row[Attempt, Charge, float | None, AccessToken | None], now: float) -> Charged:
    attempt, charge, longest_s, token = row
    longest_s = token.longest_s if longest_s is None and token is not None else longest_s
    return Charged(attempt, charge, longest_s, token, charges.trained_s(session, attempt.run_id, now))


def _carry_out(session: Session, charged: Charged, now: float) -> bool:
    """Do what is decided about an attempt; return whether it was anything."""
    attempt, decision = charged.attempt, _decide(session, charged, now)
    if decision is None:
        return False
    with by_policy(session, attempt.run_id, via=TOKEN):
        if decision.ends:
            end(session, attempt, now, decision.sentence, f"{decision.sentence}.")
        else:
            add_history(session, attempt.run_id, attempt.number, now, decision.sentence)
    return True


def _decide(session: Session, charged: Charged, now: float) -> LimitDecision | None:
    """Return what is to be done to an attempt; None for nothing."""
    if (since := budget.over_since(charged.trained_s, charged.longest_s, now)) is not None:
        why = f"It has trained for its {time_span(charged.longest_s)} ({charged.payer})"
    elif (since := _spent_since(session, charged, now)) is not None:
        why = f"The budget of {charged.payer} is used up"
    else:
        return _warning(session, charged)
    where = _end_words(session, charged.attempt, since, now)
    return None if where is None else LimitDecision(True, f"{why}; it ended {where}")


def _spent_since(session: Session, charged: Charged, now: float) -> float | None:
    if charged.token is None:
        return None
    return charges.spent_since(session, charged.token, charged.charge, charged.attempt, now)


def _end_words(session: Session, attempt: Attempt, since: float, now: float) -> str | None:
    """Return where an attempt over its time ends now: at checkpoint step 400; None while it waits for a checkpoint."""
    saved = (Checkpoint.fence == attempt.fence, Checkpoint.complete, Checkpoint.merged_from.is_(None))
    checkpoints = session.scalars(select(Checkpoint).where(*saved).order_by(Checkpoint.created_at)).all()
    fresh = [one for one in checkpoints if one.created_at >= since]
    if fresh:
        newest = max(fresh, key=lambda one: -1 if one.step is None else one.step)
        return f"at checkpoint {newest.path if newest.step is None else f'step {newest.step}'}"
    grace_s = budget.grace_s([one.created_at for one in checkpoints])
    return f"without a checkpoint, as none came within {time_span(grace_s)}" if now >= since + grace_s else None


def _warning(session: Session, charged: Charged) -> LimitDecision | None:
    """Return the line of an attempt that has trained for 95 % of its time; None where it has not, or has the line."""
    attempt, longest_s = charged.attempt, charged.longest_s
    if longest_s is None or charged.trained_s < budget.WARNS_AT * longest_s:
        return None
    line = f"has trained for 95 % of its {time_span(longest_s)} ({charged.payer}), and will end at a checkpoint"
    lines = select(HistoryEntry.id).where(HistoryEntry.run_id == attempt.run_id, HistoryEntry.text == line)
    is_told = session.scalar(lines.where(HistoryEntry.attempt == attempt.number).limit(1)) is not None
    return None if is_told else LimitDecision(False, line)
