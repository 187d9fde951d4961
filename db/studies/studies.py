"""Request, read and end studies: sweeps and scaling studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from db import acting
from db.budgets import charges
from db.engine import Store
from db.exceptions import NoSuchStudy
from db.models import Study, new_id
from db.people import audit
from db.people.ownership import ObjectKind, project_column, project_of
from db.people.permission import no_such, permit
from db.people.visibility import hidden_among, is_visible, sees_everything
from db.studies.trials import trials_of
from domain.choices import RUN_ID
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.scaling.plan import ScalingPlan
from domain.spec import RunSpec
from domain.studies import Trial
from domain.sweeps import SweepPlan

AnyPlan = SweepPlan | ScalingPlan
PLANS: Mapping[str, type[AnyPlan]] = {plan.kind: plan for plan in (SweepPlan, ScalingPlan)}
Plan = TypeVar("Plan", bound=AnyPlan, covariant=True)


@dataclass(frozen=True)
class StudyView(Generic[Plan]):
    """A study as people requested it, and its trials by number."""

    id: str
    spec: RunSpec
    """Includes secrets, which must not be shown."""
    plan: Plan
    created_at: float
    stop_requested_at: float | None
    ended_at: float | None
    message: str | None
    """Why it ended before its last trial."""
    trials: list[Trial]
    hidden: list[Trial]
    """Trials whose run was moved to a project that is hidden from the actor: they are counted, and never shown."""
    by: str | None = None
    """Who requested it; None: the program."""
    only_project: str | None = None
    """The one project of the token with which it was requested."""
    token_id: str | None = None
    """The token whose budget pays for its trials."""

    @property
    def all_trials(self) -> list[Trial]:
        """The hidden ones too, for sums over all of them."""
        return [*self.trials, *self.hidden]

    @property
    def title(self) -> str:
        """Its kind and id, as the audit log and the history of its runs name it."""
        return f"{self.plan.noun} {self.id}"


SweepView = StudyView[SweepPlan]
ScalingView = StudyView[ScalingPlan]


def create(store: Store, spec: RunSpec, plan: AnyPlan, now: float) -> str:
    """Store a study whose trials are launched by and by; return its id. Raises OverBudget."""
    with store.write() as session:
        row = Study(
            id=new_id(),
            kind=plan.kind,
            spec=spec.model_dump(mode="json"),
            plan=plan.model_dump(mode="json"),
            by=acting.rights().by,
            only_project=acting.rights().only_project,
            token_id=charges.payer(),
            created_at=now,
        )
        session.add(row)
        audit.record(session, AuditAction.LAUNCHED, f"{plan.noun} {row.id}", project_of(spec))
        return row.id


def request_stop(store: Store, study_id: str, now: float, why: str | None = None) -> None:
    """Ask a study to end, with all its live trials; `why` if no person did. A repeated request changes nothing.

    Raises NoSuchStudy, Denied."""
    with store.write() as session:
        row = _row(session, study_id, Action.STOP)
        if row.stop_requested_at is None and row.ended_at is None:
            row.stop_requested_at, row.message = now, why
            spec, noun = RunSpec.model_validate(row.spec), PLANS[row.kind].noun
            audit.record(session, AuditAction.STOPPED, f"{noun} {row.id}", project_of(spec))


def complete_plan(store: Store, study_id: str, **fields: Any) -> None:
    """Store fields of a plan that a study was requested without. Raises NoSuchStudy."""
    with store.write() as session:
        row = _row(session, study_id)
        row.plan = {**row.plan, **fields}


def end(store: Store, study_id: str, now: float, message: str | None = None) -> None:
    """Note that a study needs no further trial, and why if it ends before its last one. Raises NoSuchStudy."""
    with store.write() as session:
        row = _row(session, study_id)
        row.ended_at, row.message = now, message or row.message


def study(store: Store, study_id: str, plan: type[Plan]) -> StudyView[Plan]:
    """One study of a kind; its id may be any text. Raises NoSuchStudy, also where it is hidden from the actor."""
    with store.read() as session:
        row = _row(session, study_id)
        if row.kind != plan.kind:
            raise NoSuchStudy(f"There is no {plan.noun} {study_id!r}: it is a {PLANS[row.kind].noun}.")
        return _view(session, row)


def studies(store: Store, plan: type[Plan], limit: int = 100) -> list[StudyView[Plan]]:
    """Studies of a kind, newest first."""
    query = _OF_KIND
    if not sees_everything():
        query = query.where(is_visible(project_column(Study.spec), Study.by))
    with store.read() as session:
        return [_view(session, row) for row in session.scalars(query, {"kind": plan.kind, "limit": limit})]


def live(store: Store) -> list[StudyView[AnyPlan]]:
    """All studies in progress, newest first."""
    with store.read() as session:
        return [_view(session, row) for row in session.scalars(_LIVE)]


_NEWEST = select(Study).order_by(Study.created_at.desc(), Study.id)
_OF_KIND = _NEWEST.where(Study.kind == bindparam("kind")).limit(bindparam("limit"))
_LIVE = _NEWEST.where(Study.ended_at.is_(None))
"""Built once: it runs every second."""


def latest_scaling_of(store: Store, target: str, entry: str | None, module: str | None) -> ScalingView | None:
    """The newest scaling study of the same program that has ended."""
    query = (
        _NEWEST.where(Study.kind == ScalingPlan.kind, Study.ended_at.is_not(None))
        .where(Study.spec["target"].as_string() == target, is_visible(project_column(Study.spec), Study.by))
        .limit(20)
    )
    with store.read() as session:
        for row in session.scalars(query):
            same_entry = entry is None or row.spec.get("entry") == entry
            if same_entry and row.spec.get("module") == module:
                return _view(session, row)
    return None


def _row(session: Session, study_id: str, action: Action = Action.SEE) -> Study:
    """The study to which the actor may do this. Raises NoSuchStudy, Denied."""
    permit(session, action, ObjectKind.STUDY, study_id)
    row = session.get(Study, study_id) if RUN_ID.fullmatch(study_id) else None
    if row is None:
        raise no_such(ObjectKind.STUDY, study_id)
    return row


def _view(session: Session, row: Study) -> StudyView[Any]:
    plan = PLANS[row.kind].model_validate(row.plan)
    trials = trials_of(session, row.id, plan.metric)
    hidden = hidden_among(session, [trial.run_id for trial in trials])
    return StudyView(
        row.id, RunSpec.model_validate(row.spec), plan, row.created_at, row.stop_requested_at, row.ended_at,
        row.message, [one for one in trials if one.run_id not in hidden],
        [one for one in trials if one.run_id in hidden], row.by, row.only_project, row.token_id,
    )  # fmt: skip
