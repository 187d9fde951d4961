"""Notices of what others did to a person's runs, for that person's next page and the receivers of their alerts."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import Alert, AlertEvent, Notice, Run
from db.people.accounts import is_present
from domain.alerts.message import DeliveryState

MOST_SHOWN = 5


@dataclass(frozen=True)
class NoticeView:
    """Something that another person did to one's run."""

    id: int
    run_id: str | None
    at: float
    sentence: str


def record(session: Session, run: Run, sentence: str, now: float) -> None:
    """Tell the person who launched a run, unless they were removed."""
    if run.by is not None:
        record_for(session, run.by, run, sentence, now)


def record_for(session: Session, name: str, run: Run, sentence: str, now: float) -> None:
    """Tell a person something about a run, once on their pages and once to each receiver of their alerts about it."""
    if not is_present(session, name):
        return
    session.add(Notice(user=name, run_id=run.id, at=now, sentence=sentence))
    about = or_(
        Alert.run_id == run.id, Alert.run_id.is_(None) & or_(Alert.project == run.project, Alert.project.is_(None))
    )
    alerts = session.scalars(
        select(Alert).where(Alert.by == name, Alert.act.is_(None), about).order_by(Alert.created_at)
    )
    key = f"notice/{secrets.token_hex(8)}"
    for alert in {alert.target: alert for alert in alerts}.values():
        waiting = {"state": DeliveryState.WAITING, "next_try_at": now}
        session.add(AlertEvent(alert_id=alert.id, key=key, run_id=run.id, at=now, sentence=sentence, **waiting))


def unread(store: Store) -> list[NoticeView]:
    """The actor's newest notices, newest first."""
    query = select(Notice).where(Notice.user == acting.name()).order_by(Notice.id.desc()).limit(MOST_SHOWN)
    with store.read() as session:
        return [NoticeView(row.id, row.run_id, row.at, row.sentence) for row in session.scalars(query)]


def read(store: Store, notice_id: int) -> None:
    """Forget a notice that the actor has read; one of another person stays."""
    with store.write() as session:
        session.execute(delete(Notice).where(Notice.id == notice_id, Notice.user == acting.name()))
