"""Events of alerts: recorded once, claimed by the thread that sends them, settled by the outcome."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, select, true, update
from sqlalchemy.orm import Session

from db import acting
from db.alerts.alerts import alert_row, write_down
from db.engine import Store
from db.models import Alert, AlertEvent, Run
from db.people.ownership import ObjectKind
from db.people.permission import permit
from db.people.visibility import visible_among
from domain.alerts.judgement import RunEvent
from domain.alerts.message import GATHER_S, GIVE_UP_S, DeliveryState, MessageItem, SendOutcome, pause_s, state_after
from domain.alerts.targets import BROWSER
from domain.people.audit import AuditAction
from domain.people.roles import Action

LEFT_BEHIND_S = 120.0
"""Longer than any attempt to send: its sender was killed."""
LONGEST_PROBLEM = 500
KEYS_AT_ONCE = 1000
"""Databases limit the values of one statement."""
TEST_EVENT = "test"
"""The rule in a test message."""
TEST_KEY = "test/"


@dataclass(frozen=True)
class OutgoingMessage:
    """Events of one alert that are being sent in one message."""

    alert_id: str
    message_id: str
    rule: str
    target: str
    secret: str | None
    event_ids: tuple[int, ...]
    items: tuple[MessageItem, ...]


def record(store: Store, events: Iterable[tuple[str, RunEvent]], now: float) -> int:
    """Store events of alerts (by id) that are not stored yet, and whose runs exist; return their number."""
    unrecorded = {(alert_id, event.key): event for alert_id, event in events}
    if not unrecorded:
        return 0
    with store.read() as session:
        if not (unrecorded := _unknown(session, unrecorded)):
            return 0
    with store.write() as session:
        unrecorded = _unknown(session, unrecorded)
        ids, deleted_runs = set(session.scalars(select(Alert.id))), deleted_among(session, unrecorded.values())
        added = [
            row(alert_id, event, now)
            for (alert_id, _), event in unrecorded.items()
            if alert_id in ids and event.run_id not in deleted_runs
        ]
        session.add_all(added)
        return len(added)


def deleted_among(session: Session, events: Iterable[RunEvent]) -> set[str]:
    """The runs of these events that were deleted or erased, perhaps since the events were judged."""
    named = {event.run_id for event in events if event.run_id is not None}
    return named.difference(session.scalars(select(Run.id).where(Run.id.in_(named), Run.deleted_at.is_(None))))


def record_test(store: Store, alert_id: str, now: float) -> None:
    """Store an event that sends a test message, even where other messages wait. Raises NoSuchAlert, Denied."""
    sentence = "This is a test message: alerts reach you here."
    with store.write() as session:
        permit(session, Action.ACT, ObjectKind.ALERT, alert_id)
        write_down(session, AuditAction.ALERT_TESTED, alert_row(session, alert_id))
        key = TEST_KEY + secrets.token_hex(8)
        session.add(row(alert_id, RunEvent(key, None, now, sentence), now))


def claim(store: Store, now: float, busy_targets: Collection[str], most: int) -> list[OutgoingMessage]:
    """Take the messages that are due, at most `most` and one for each target; nobody else sends them then."""
    with store.read() as session:
        if most <= 0 or not _due(session, now):
            return []
    with store.write() as session:
        claimed: list[OutgoingMessage] = []
        busy = {*busy_targets}
        for alert, rows in _batches(_due(session, now), now):
            if len(claimed) < most and alert.target not in busy:
                busy.add(alert.target)
                claimed.append(_claimed(alert, rows, now))
        return claimed


def settle(store: Store, outgoing: OutgoingMessage, outcome: SendOutcome, problem: str | None, now: float) -> None:
    """Store the outcome of an attempt to send."""
    with store.write() as session:
        alert = session.get(Alert, outgoing.alert_id)
        rows = session.scalars(select(AlertEvent).where(AlertEvent.id.in_(outgoing.event_ids)))
        for row in rows:
            _settle(row, outcome, problem, now, is_repeatable=outgoing.secret is not None)
        if alert is not None and outcome == SendOutcome.ACCEPTED:
            alert.last_sent_at = now
            if outgoing.rule != TEST_EVENT:
                alert.gathers_until = now + GATHER_S


def settle_left_behind(store: Store, now: float) -> None:
    """Settle what a dashboard that was killed had claimed: it may have arrived."""
    query = (
        select(AlertEvent, Alert.secret)
        .join(Alert, Alert.id == AlertEvent.alert_id)
        .where(AlertEvent.state == DeliveryState.SENDING, AlertEvent.tried_at < now - LEFT_BEHIND_S)
    )
    with store.read() as session:
        if session.execute(query.limit(1)).first() is None:
            return
    problem = "The dashboard ended while sending this; it may have arrived."
    with store.write() as session:
        for row, secret in session.execute(query):
            _settle(row, SendOutcome.UNCLEAR, problem, now, is_repeatable=secret is not None)


def row(alert_id: str, event: RunEvent, now: float, act: str | None = None) -> AlertEvent:
    """The row of an event whose message waits; `act` is what was done to the run."""
    return AlertEvent(
        alert_id=alert_id, key=event.key, run_id=event.run_id, at=event.at, sentence=event.sentence, act=act,
        state=DeliveryState.WAITING, next_try_at=now,
    )  # fmt: skip


def _unknown(session: Session, events: dict[tuple[str, str], RunEvent]) -> dict[tuple[str, str], RunEvent]:
    stored: set[tuple[str, str]] = set()
    keys = sorted({key for _, key in events})
    for start in range(0, len(keys), KEYS_AT_ONCE):
        some = AlertEvent.key.in_(keys[start : start + KEYS_AT_ONCE])
        stored |= {(row[0], row[1]) for row in session.execute(select(AlertEvent.alert_id, AlertEvent.key).where(some))}
    return {name: event for name, event in events.items() if name not in stored}


_DUE = (
    select(Alert, AlertEvent)
    .join(AlertEvent, AlertEvent.alert_id == Alert.id)
    .where(AlertEvent.state == DeliveryState.WAITING, AlertEvent.next_try_at <= bindparam("now"))
    .where(Alert.target != BROWSER)
    .order_by(AlertEvent.next_try_at, AlertEvent.id)
)
"""Built once: it runs every second."""


def _due(session: Session, now: float) -> list[tuple[Alert, AlertEvent]]:
    return [
        (alert, row)
        for alert, row in session.execute(_DUE, {"now": now})
        if row.key.startswith(TEST_KEY) or alert.gathers_until is None or now >= alert.gathers_until
    ]


def _batches(due: Iterable[tuple[Alert, AlertEvent]], now: float) -> Iterable[tuple[Alert, Sequence[AlertEvent]]]:
    """Gather the events of an alert; those of a message that may have arrived stay together, and so do tests."""
    batches: dict[tuple[str, str | None], tuple[Alert, list[AlertEvent]]] = {}
    for alert, row in due:
        own = row.message_id or (row.key if row.key.startswith(TEST_KEY) else None)
        batches.setdefault((alert.id, own), (alert, []))[1].append(row)
    return batches.values()


def _claimed(alert: Alert, rows: Sequence[AlertEvent], now: float) -> OutgoingMessage:
    message_id = rows[0].message_id or f"msg_{secrets.token_hex(12)}"
    for row in rows:
        row.state, row.message_id, row.tried_at, row.tries = (
            DeliveryState.SENDING,
            message_id,
            now,
            row.tries + 1,
        )
    items = tuple(MessageItem(row.run_id, row.at, row.sentence) for row in rows)
    ids = tuple(row.id for row in rows)
    rule = TEST_EVENT if rows[0].key.startswith(TEST_KEY) else alert.rule
    return OutgoingMessage(alert.id, message_id, rule, alert.target, alert.secret, ids, items)


def _settle(row: AlertEvent, outcome: SendOutcome, problem: str | None, now: float, *, is_repeatable: bool) -> None:
    row.state = state_after(outcome, row.at, now, is_repeatable=is_repeatable)
    row.problem = problem[:LONGEST_PROBLEM] if problem else None
    row.next_try_at = now + pause_s(row.tries)
    if outcome == SendOutcome.UNAVAILABLE:  # it did not arrive: it may be gathered with later events
        row.message_id = None


# Events of alerts that open tabs of the dashboard show; they wait in the store until one has shown them.

MOST = 50
"""Of one answer."""
UNSEEN = "No dashboard tab that may show notifications was open for a day."


@dataclass(frozen=True)
class BrowserNotification:
    """One event as a tab shows it."""

    id: int
    alert: str
    """The alert's id."""
    rule: str
    run_id: str | None
    """None for a test."""
    at: float
    sentence: str


def browser_notifications(store: Store, after: int | None) -> tuple[int, list[BrowserNotification]]:
    """Events of one's own alerts that no tab has shown, and those after an id, of runs that one sees; with the newest's
    id, else 0.

    `after`: the newest that this browser knows; None: it knows none, and is told nothing of before."""
    of_browser = AlertEvent.alert_id.in_(select(Alert.id).where(_is_own_browser()))
    is_new = AlertEvent.state == DeliveryState.WAITING
    if after is not None:
        is_new = or_(is_new, AlertEvent.id > after)
    query = select(Alert, AlertEvent).join(AlertEvent, AlertEvent.alert_id == Alert.id).where(of_browser, is_new)
    with store.read() as session:
        newest = session.scalar(select(func.max(AlertEvent.id)).where(of_browser)) or 0
        rows = session.execute(query.order_by(AlertEvent.id.desc()).limit(MOST)).all()
        visible = visible_among(session, [row.run_id for _, row in rows])
        shown_rows = [(alert, row) for alert, row in reversed(rows) if row.run_id is None or row.run_id in visible]
        return newest, [_notification(alert, row) for alert, row in shown_rows]


def _is_own_browser() -> ColumnElement[bool]:
    """Whether an alert notifies the visitor's own browser."""
    by = acting.rights().by
    is_own = true() if by is None else or_(Alert.by == by, Alert.by.is_(None))
    return and_(Alert.target == BROWSER, is_own)


def shown(store: Store, ids: Sequence[int], now: float) -> None:
    """Note that a tab has shown these events; ids of others are ignored."""
    waiting = (
        select(AlertEvent)
        .join(Alert, Alert.id == AlertEvent.alert_id)
        .where(_is_own_browser(), AlertEvent.id.in_(ids), AlertEvent.state == DeliveryState.WAITING)
    )
    with store.write() as session:
        rows = session.scalars(waiting).all()
        for row in rows:
            row.state, row.problem = DeliveryState.SENT, None
        of_events = Alert.id.in_({row.alert_id for row in rows})
        session.execute(update(Alert).where(of_events).values(last_sent_at=now))


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


def _notification(alert: Alert, row: AlertEvent) -> BrowserNotification:
    rule = TEST_EVENT if row.key.startswith(TEST_KEY) else alert.rule
    return BrowserNotification(row.id, alert.id, rule, row.run_id, row.at, row.sentence)
