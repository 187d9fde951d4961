"""Set, list and remove alerts."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import Alert, AlertEvent, Run, new_id
from db.people import audit
from db.people.ownership import ObjectKind
from db.people.permission import no_such, permit, permitted_run
from db.people.visibility import is_visible, sees_everything
from domain.alerts.message import DeliveryState
from domain.alerts.rules import Act, AlertAction
from domain.choices import RUN_ID
from domain.people.audit import AuditAction
from domain.people.roles import Action


@dataclass(frozen=True)
class AlertView:
    """A rule with its target, and how far its messages are."""

    id: str
    rule: str
    target: str = field(repr=False)
    """Includes secrets, which must not be shown."""
    secret: str | None = field(repr=False)
    project: str | None
    run_id: str | None
    act: str | None
    """end, rollback, or None: it only tells."""
    lr_factor: float | None
    created_at: float
    last_sent_at: float | None
    waiting: int
    """Events whose message was not accepted yet."""
    problem: str | None
    """Why the newest message was not sent, or not yet."""
    by: str | None = None
    """Who set it; None: the program."""
    of_project: str | None = None
    """The project that it is about, its run's; None: all."""


def create(
    store: Store, rule: str, target: str, secret: str | None, now: float,
    project: str | None = None, run_id: str | None = None, action: AlertAction | None = None,
) -> str:  # fmt: skip
    """Store an alert; return its id. Raises NoSuchRun, Denied where it shall act on a run of somebody else."""
    with store.write() as session:
        if run_id is not None:
            permitted_run(session, Action.ACT if action else Action.SEE, run_id)
        alert = Alert(
            by=acting.rights().by,
            id=new_id(), rule=rule, target=target, secret=secret, project=project, run_id=run_id, created_at=now,
            act=action.act if action else None, lr_factor=_factor(action),
        )  # fmt: skip
        session.add(alert)
        write_down(session, AuditAction.ALERT_MADE, alert)
        return alert.id


def remove(store: Store, alert_id: str) -> AlertView:
    """Remove an alert and its events; return its last view. Raises NoSuchAlert, Denied."""
    with store.write() as session:
        permit(session, Action.STOP, ObjectKind.ALERT, alert_id)
        row = alert_row(session, alert_id)
        view = _view(session, row)
        write_down(session, AuditAction.ALERT_REMOVED, row)
        session.delete(row)
        return view


def alert(store: Store, alert_id: str) -> AlertView:
    """One alert; its id may be any text. Raises NoSuchAlert."""
    with store.read() as session:
        return _view(session, alert_row(session, alert_id))


def alerts(store: Store) -> list[AlertView]:
    """All alerts, oldest first; without those about hidden projects and runs."""
    query = select(Alert).order_by(Alert.created_at, Alert.id)
    if not sees_everything():
        project = func.coalesce(Run.project, Alert.project)
        query = query.outerjoin(Run, Run.id == Alert.run_id).where(
            or_(project.is_(None), is_visible(project, Alert.by))
        )
    with store.read() as session:
        rows = session.scalars(query)
        return [_view(session, row) for row in rows]


def write_down(session: Session, action: AuditAction, alert: Alert) -> None:
    """Write down in the audit log what the actor does to an alert."""
    run = session.get(Run, alert.run_id) if alert.run_id else None
    more = {"rule": alert.rule, **({"run": run.id} if run else {})}
    audit.record(session, action, f"alert {alert.id}", run.project if run else alert.project, more)


def _factor(action: AlertAction | None) -> float | None:
    return action.lr_factor if action and action.act == Act.ROLLBACK else None


def alert_row(session: Session, alert_id: str) -> Alert:
    """The row of an alert; its id may be any text. Raises NoSuchAlert."""
    row = session.get(Alert, alert_id) if RUN_ID.fullmatch(alert_id) else None
    if row is None:
        raise no_such(ObjectKind.ALERT, alert_id)
    return row


def _view(session: Session, row: Alert) -> AlertView:
    states = select(AlertEvent.state, AlertEvent.problem).where(AlertEvent.alert_id == row.id)
    pending = (DeliveryState.WAITING, DeliveryState.SENDING)
    waiting = session.execute(states.where(AlertEvent.state.in_(pending))).all()
    run = session.get(Run, row.run_id) if row.run_id else None
    newest = session.execute(states.order_by(AlertEvent.id.desc()).limit(1)).first()
    return AlertView(
        row.id, row.rule, row.target, row.secret, row.project, row.run_id, row.act, row.lr_factor,
        row.created_at, row.last_sent_at, len(waiting), newest.problem if newest else None, row.by,
        run.project if run else row.project,
    )  # fmt: skip
