"""Events of alerts that open tabs of the dashboard show; they wait in the store until one has shown them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, or_, select, update

from db.alerts.events import TEST, TEST_KEY
from db.engine import Store
from db.models import Alert, AlertEvent
from domain.alerts.message import GIVE_UP_S, DeliveryState
from domain.alerts.targets import BROWSER

MOST = 50
"""Of one answer."""
UNSEEN = "No tab of the dashboard that may show notifications was open for a day."


@dataclass(frozen=True)
class Notice:
    """One event as a tab shows it."""

    id: int
    alert: str
    """The alert's id."""
    rule: str
    run_id: str | None
    """None for a test."""
    at: float
    sentence: str


def notices(store: Store, after: int | None) -> tuple[int, list[Notice]]:
    """Events that no tab has shown, and those after one's id; with the id of the newest, 0 if there is none.

    `after`: the newest that this browser knows; None: it knows none, and is told nothing of before."""
    of_browser = AlertEvent.alert_id.in_(select(Alert.id).where(Alert.target == BROWSER))
    is_new = AlertEvent.state == DeliveryState.WAITING
    if after is not None:
        is_new = or_(is_new, AlertEvent.id > after)
    query = select(Alert, AlertEvent).join(AlertEvent, AlertEvent.alert_id == Alert.id).where(of_browser, is_new)
    with store.read() as session:
        newest = session.scalar(select(func.max(AlertEvent.id)).where(of_browser)) or 0
        found = session.execute(query.order_by(AlertEvent.id.desc()).limit(MOST)).all()
        return newest, [_notice(alert, row) for alert, row in reversed(found)]


def shown(store: Store, ids: Sequence[int], now: float) -> None:
    """Note that a tab has shown these events; ids of others are ignored."""
    waiting = (
        select(AlertEvent)
        .join(Alert, Alert.id == AlertEvent.alert_id)
        .where(Alert.target == BROWSER, AlertEvent.id.in_(ids), AlertEvent.state == DeliveryState.WAITING)
    )
    with store.write() as session:
        rows = session.scalars(waiting).all()
        for row in rows:
            row.state, row.problem = DeliveryState.SENT, None
        seen = Alert.id.in_({row.alert_id for row in rows})
        session.execute(update(Alert).where(seen).values(last_sent_at=now))


def give_up(store: Store, now: float) -> None:
    """Give up what no tab has shown for a day."""
    of_browser = select(Alert.id).where(Alert.target == BROWSER)
    late = (
        AlertEvent.alert_id.in_(of_browser),
        AlertEvent.state == DeliveryState.WAITING,
        AlertEvent.at < now - GIVE_UP_S,
    )
    with store.read() as session:
        if session.scalar(select(AlertEvent.id).where(*late).limit(1)) is None:
            return
    with store.write() as session:
        session.execute(update(AlertEvent).where(*late).values(state=DeliveryState.UNSENT, problem=UNSEEN))


def _notice(alert: Alert, row: AlertEvent) -> Notice:
    rule = TEST if row.key.startswith(TEST_KEY) else alert.rule
    return Notice(row.id, alert.id, rule, row.run_id, row.at, row.sentence)
