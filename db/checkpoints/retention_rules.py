"""The retention rules of projects and runs: set, read, and which of them holds for a run."""

from __future__ import annotations

from sqlalchemy import Select, or_, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.lookups import add_history
from db.models import Attempt, Checkpoint, RetentionRule, Run
from db.people import audit
from db.people.permission import permitted_run
from domain.checkpoint_use.retention import KEEP_ALL, RetentionClauses, parse, text_of
from domain.checkpoint_use.retention_views import RuleView
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest

LONGEST_PROJECT = 200


def of_run(store: Store, run_id: str) -> RuleView:
    """The rule that holds for a run. Raises NoSuchRun."""
    with store.read() as session:
        return rule_for(session, permitted_run(session, Action.SEE, run_id))


def of_project(store: Store, project: str) -> RuleView:
    """The rule of a project; of one that is hidden, what is true of one that does not exist: it has none."""
    with store.read() as session:
        return _view(_row(session, project=project) if acting.rights().sees(project) else None, "project")


def of_project_of(store: Store, run_id: str) -> RuleView:
    """The rule of a run's project. Raises NoSuchRun."""
    with store.read() as session:
        return _view(_row(session, project=permitted_run(session, Action.SEE, run_id).project), "project")


def rule_for(session: Session, run: Run) -> RuleView:
    """The rule that holds for a run: its own, else its project's; without one all are kept."""
    own = _row(session, run_id=run.id)
    return _view(own, "run") if own else _view(_row(session, project=run.project), "project")


def set_for_run(store: Store, run_id: str, text: str | None, now: float) -> RuleView:
    """Set a run's own rule; None: its project's holds again. Raises InvalidRequest, NoSuchRun, Denied."""
    rule = None if text is None else text_of(parse(text))
    with store.write() as session:
        run = permitted_run(session, Action.ACT, run_id)
        _set(session, rule, now, run_id=run_id)
        said = rule or "that of its project"
        add_history(session, run_id, None, now, f"checkpoints are kept by the rule {said!r}" if rule else _AGAIN)
        audit.record_of_run(session, AuditAction.RETENTION_SET, run, {"rule": said})
        return rule_for(session, run)


def set_for_project(store: Store, project: str, text: str | None, now: float) -> RuleView:
    """Set or remove the rule of a project, which its admins may. Raises InvalidRequest, Denied."""
    if not 1 <= len(project) <= LONGEST_PROJECT:
        raise InvalidRequest("project", f"project: a name has 1 to {LONGEST_PROJECT} characters.")
    rule = None if text is None else text_of(parse(text))
    acting.rights().check(Action.MANAGE, project)
    with store.write() as session:
        _set(session, rule, now, project=project)
        audit.record(session, AuditAction.RETENTION_SET, f"project {project}", project, {"rule": rule or KEEP_ALL})
        return _view(_row(session, project=project), "project")


def ruled_runs(store: Store, project: str | None = None) -> list[str]:
    """The runs, of one project or of all, with checkpoints for which a rule other than keeping all holds."""
    with store.read() as session:
        query = _RULED if project is None else _RULED.where(Run.project == project)
        return list(session.scalars(query))


def runs_under_project(store: Store, project: str) -> list[str]:
    """The runs of a project with checkpoints and without a rule of their own."""
    own = select(RetentionRule.run_id).where(RetentionRule.run_id.is_not(None))
    query = select(Run.id).where(Run.project == project, Run.deleted_at.is_(None), Run.id.in_(_HAS_CHECKPOINTS))
    with store.read() as session:
        return list(session.scalars(query.where(Run.id.not_in(own)).order_by(Run.id)))


_AGAIN = "checkpoints are kept by the rule of its project"
_HAS_CHECKPOINTS = (
    select(Attempt.run_id)
    .join(Checkpoint, Checkpoint.fence == Attempt.fence)
    .where(Checkpoint.complete, Checkpoint.deleted_at.is_(None))
)
_RULED = (
    select(Run.id)
    .join(RetentionRule, or_(RetentionRule.run_id == Run.id, RetentionRule.project == Run.project))
    .where(RetentionRule.rule != KEEP_ALL, Run.deleted_at.is_(None), Run.id.in_(_HAS_CHECKPOINTS))
    .distinct()
    .order_by(Run.id)
)


def _query(project: str | None, run_id: str | None) -> Select[RetentionRule]:
    of = RetentionRule.project == project if run_id is None else RetentionRule.run_id == run_id
    return select(RetentionRule).where(of)


def _row(session: Session, *, project: str | None = None, run_id: str | None = None) -> RetentionRule | None:
    return session.scalars(_query(project, run_id)).first()


def _set(
    session: Session, rule: str | None, now: float, *, project: str | None = None, run_id: str | None = None
) -> None:
    row = _row(session, project=project, run_id=run_id)
    if rule is None:
        if row is not None:
            session.delete(row)
            session.flush()
        return
    if row is None:
        row = RetentionRule(project=project, run_id=run_id, rule=rule, set_at=now)
        session.add(row)
    row.rule, row.set_at, row.set_by = rule, now, acting.rights().by
    session.flush()


def _view(row: RetentionRule | None, of: str) -> RuleView:
    if row is None:
        return RuleView(KEEP_ALL, None, None, None)
    return RuleView(row.rule, of, row.set_by, row.set_at)


def stored(view: RuleView) -> RetentionClauses | None:
    """Return the rule of a view; one that a later version wrote, and this one cannot read, keeps all."""
    try:
        return parse(view.rule)
    except InvalidRequest:
        return None
