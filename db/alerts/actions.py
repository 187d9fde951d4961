"""Do what an alert says to the run that met its rule: in the transaction that records the event, so once."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.alerts import events
from db.alerts.alerts import AlertView
from db.attempts.new_attempt import changes_before, origin_limit, request_rollback, spec_after_rollbacks
from db.engine import Store
from db.models import Alert, AlertEvent, Attempt, WatchedRun
from db.runs import run_requests
from domain.alerts.judgement import RunEvent
from domain.alerts.rules import MOST_ROLLBACKS, Act, RateChange
from domain.messages import State
from domain.recovery import Rollback
from domain.spec import RunSpec


def spec_of(store: Store, run_id: str) -> RunSpec | None:
    """A run's spec as its next attempt would have it, with its secrets; None where there is no such run."""
    with store.read() as session:
        return spec_after_rollbacks(session, run_id)


def is_recorded(store: Store, alert_id: str, key: str) -> bool:
    """Whether an event is stored, and with it what was done."""
    with store.read() as session:
        return _recorded(session, alert_id, key)


def carry_out(
    store: Store, alert: AlertView, event: RunEvent, good: tuple[int, float, float] | None,
    rate: RateChange, now: float,
) -> bool:  # fmt: skip
    """Record an event and act on its run, unless the event is recorded or the run deleted.

    Returns whether the run shall end.

    `good`: the last good point before the event, (step, value, wall time), for a rollback."""
    with store.write() as session:
        if _recorded(session, alert.id, event.key) or session.get(Alert, alert.id) is None:
            return False
        if events.deleted_among(session, [event]):
            return False
        attempt = session.get(Attempt, event.fence)
        act, words = _acted(session, alert, attempt, event, good, rate, now)
        acted_event = replace(event, sentence=f"{event.sentence} {words}")
        session.add(events.row(alert.id, acted_event, now, act))
        return act is not None


def _recorded(session: Session, alert_id: str, key: str) -> bool:
    query = select(AlertEvent.id).where(AlertEvent.alert_id == alert_id, AlertEvent.key == key)
    return session.scalar(query) is not None


def _acted(
    session: Session, alert: AlertView, attempt: Attempt | None, event: RunEvent,
    good: tuple[int, float, float] | None, rate: RateChange, now: float,
) -> tuple[Act | None, str]:  # fmt: skip
    """End or roll back the attempt; return what was done and the sentence about it."""
    if attempt is None or State(attempt.state).is_terminal:
        return None, "It had already ended, so nothing was done."
    if attempt.stop_requested_at is not None or attempt.end_requested_at is not None or attempt.rollback:
        return None, "It was already ending, so nothing was done."
    watched = session.get(WatchedRun, attempt.run_id)
    if watched is not None and (watched.look_only or alert.act != Act.END):
        return None, "Somebody else started it elsewhere, so nothing was done."
    if alert.act == Act.END:
        _end(session, attempt, alert, event.sentence, now)
        return Act.END, "The run is ended."
    if _rollbacks(session, alert.id, attempt.run_id) >= MOST_ROLLBACKS:
        words = f"This alert has rolled the run back {MOST_ROLLBACKS} times, so it ends now."
        _end(session, attempt, alert, f"{event.sentence} {words}", now)
        return Act.END, words
    return Act.ROLLBACK, _roll_back(session, attempt, alert, event, good, rate, now)


def _rollbacks(session: Session, alert_id: str, run_id: str) -> int:
    conditions = AlertEvent.alert_id == alert_id, AlertEvent.run_id == run_id, AlertEvent.act == Act.ROLLBACK
    return session.scalar(select(func.count()).select_from(AlertEvent).where(*conditions)) or 0


def _end(session: Session, attempt: Attempt, alert: AlertView, sentence: str, now: float) -> None:
    message = f"Ended by the alert {alert.rule}: {sentence}"
    run_requests.end(session, attempt, now, f"by the alert {alert.rule}", message)


def _roll_back(
    session: Session, attempt: Attempt, alert: AlertView, event: RunEvent,
    good: tuple[int, float, float] | None, rate: RateChange, now: float,
) -> str:  # fmt: skip
    why = f"rolled back by the alert {alert.rule}, {rate.words}"
    changes = changes_before(session, attempt.run_id, attempt.number) | dict(rate.changes)
    if good is None:
        rollback = origin_limit(session, attempt, why, changes)
        where = "to before it began"
    else:
        rollback = Rollback(good_step=good[0], good_at=good[2], bad_at=max(event.at, good[2]), why=why, changes=changes)
        where = f"to its last checkpoint up to step {good[0]}"
    request_rollback(session, attempt, rollback, f"to go back {where} (alert {alert.rule})", now)
    return f"The run goes back {where}, {rate.words}."
