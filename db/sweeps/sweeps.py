"""Request, read and end sweeps."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import Sweep, new_id
from db.people import audit
from db.people.ownership import ObjectKind, project_column, project_of
from db.people.permission import no_such, permit
from db.people.visibility import hidden_among, is_visible, sees_everything
from db.sweeps.trials import TrialView, trials_of
from domain.choices import RUN_ID
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.spec import RunSpec
from domain.sweeps import SweepPlan


@dataclass(frozen=True)
class SweepView:
    """A sweep as people requested it, and its trials by number."""

    id: str
    spec: RunSpec
    """Includes secrets, which must not be shown."""
    plan: SweepPlan
    created_at: float
    stop_requested_at: float | None
    ended_at: float | None
    message: str | None
    trials: list[TrialView]
    hidden: list[TrialView]
    """Trials whose run was moved to a project that is hidden from the actor: they are counted, and never shown."""
    by: str | None = None
    """Who requested it; None: the program."""
    only_project: str | None = None
    """The one project of the token with which it was requested."""

    @property
    def all_trials(self) -> list[TrialView]:
        """The hidden ones too, for sums over all of them."""
        return [*self.trials, *self.hidden]


def create(store: Store, spec: RunSpec, plan: SweepPlan, now: float) -> str:
    """Store a sweep whose trials are launched as devices become free; return its id."""
    with store.write() as session:
        sweep = Sweep(
            by=acting.rights().by,
            only_project=acting.rights().only_project,
            id=new_id(),
            spec=spec.model_dump(mode="json"),
            plan=plan.model_dump(mode="json"),
            created_at=now,
        )
        session.add(sweep)
        audit.record(session, AuditAction.LAUNCHED, f"sweep {sweep.id}", project_of(spec))
        return sweep.id


def request_stop(store: Store, sweep_id: str, now: float, why: str | None = None) -> None:
    """Ask a sweep to end, with all its live trials; `why` if no person did. A repeated request changes nothing.

    Raises NoSuchSweep, Denied."""
    with store.write() as session:
        row = _row(session, sweep_id, Action.STOP)
        if row.stop_requested_at is None and row.ended_at is None:
            row.stop_requested_at, row.message = now, why
            spec = RunSpec.model_validate(row.spec)
            audit.record(session, AuditAction.STOPPED, f"sweep {row.id}", project_of(spec))


def set_first_rung(store: Store, sweep_id: str, step: int) -> None:
    """Store the step of the first rung of a sweep that was requested without one. Raises NoSuchSweep."""
    with store.write() as session:
        row = _row(session, sweep_id)
        row.plan = {**row.plan, "first_rung": step}


def end(store: Store, sweep_id: str, now: float, message: str | None = None) -> None:
    """Note that a sweep needs no further trial, and why if it ends before its last one. Raises NoSuchSweep."""
    with store.write() as session:
        row = _row(session, sweep_id)
        row.ended_at, row.message = now, message or row.message


def sweep(store: Store, sweep_id: str) -> SweepView:
    """One sweep; its id may be any text. Raises NoSuchSweep, also where it is hidden from the actor."""
    with store.read() as session:
        return _view(session, _row(session, sweep_id))


def sweeps(store: Store, limit: int = 100, *, is_live: bool = False) -> list[SweepView]:
    """Sweeps, newest first; `is_live`: only those in progress."""
    query = _LIVE if is_live else _SWEEPS
    if not sees_everything():
        query = query.where(is_visible(project_column(Sweep.spec), Sweep.by))
    with store.read() as session:
        return [_view(session, row) for row in session.scalars(query, {"limit": limit})]


_SWEEPS = select(Sweep).order_by(Sweep.created_at.desc(), Sweep.id).limit(bindparam("limit"))
_LIVE = _SWEEPS.where(Sweep.ended_at.is_(None))
"""Built once: it runs every second."""


def _row(session: Session, sweep_id: str, action: Action = Action.SEE) -> Sweep:
    """The sweep to which the actor may do this. Raises NoSuchSweep, Denied."""
    permit(session, action, ObjectKind.SWEEP, sweep_id)
    row = session.get(Sweep, sweep_id) if RUN_ID.fullmatch(sweep_id) else None
    if row is None:
        raise no_such(ObjectKind.SWEEP, sweep_id)
    return row


def _view(session: Session, row: Sweep) -> SweepView:
    plan = SweepPlan.model_validate(row.plan)
    trials = trials_of(session, row.id, plan.metric)
    hidden = hidden_among(session, [trial.run_id for trial in trials])
    return SweepView(
        row.id, RunSpec.model_validate(row.spec), plan, row.created_at, row.stop_requested_at, row.ended_at,
        row.message, [one for one in trials if one.run_id not in hidden],
        [one for one in trials if one.run_id in hidden], row.by, row.only_project,
    )  # fmt: skip
