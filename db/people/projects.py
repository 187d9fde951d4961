"""Projects as people see them: which there are, which are private, who has a role in each."""

from __future__ import annotations

from sqlalchemy import and_, exists, select

from db import acting
from db.engine import Store
from db.models import Alert, Invitation, Membership, PrivateProject, RetentionRule, Run, Secret, Study, User
from db.people import accounts, audit
from db.people.ownership import project_column
from domain.people.accounts import MemberView, ProjectAccessView
from domain.people.audit import AuditAction
from domain.people.rights import OWNER
from domain.people.roles import Role


def every(store: Store) -> list[ProjectAccessView]:
    """The projects that exist for the actor: with runs or members, or private ones."""
    rights = acting.rights()
    with store.read() as session:
        private = set(session.scalars(select(PrivateProject.project)))
        with_runs = session.scalars(select(Run.project).where(Run.deleted_at.is_(None)).distinct())
        names = private | set(with_runs) | set(session.scalars(select(Membership.project).distinct()))
    return [
        ProjectAccessView(name, name in private, rights.role_in(name)) for name in sorted(names) if rights.sees(name)
    ]


def is_named(store: Store, project: str) -> bool:
    """Whether a run or study, a role, an invitation or a setting is of this project, for any visitor."""
    columns = (Run.project, Membership.project, PrivateProject.project, Secret.project, Alert.project)
    conditions = [column == project for column in (*columns, RetentionRule.project)]
    conditions += [project_column(Study.spec) == project]
    conditions += [and_(Invitation.project == project, Invitation.revoked_at.is_(None))]
    with store.read() as session:
        return any(session.scalar(select(exists().where(condition))) for condition in conditions)


def set_privacy(store: Store, project: str, is_private: bool, now: float) -> None:
    """Make a project private, with the actor as its admin, or open it again to all with a role everywhere."""
    by = acting.rights().by
    with store.write() as session:
        row = session.get(PrivateProject, project)
        if is_private and row is None:
            session.add(PrivateProject(project=project, since=now, by=by))
            if by is not None and by != OWNER:
                accounts.set_membership(session, by, project, Role.ADMIN)
            audit.record(session, AuditAction.PROJECT_MADE_PRIVATE, f"project {project}", project)
        elif not is_private and row is not None:
            session.delete(row)
            audit.record(session, AuditAction.PROJECT_MADE_PUBLIC, f"project {project}", project)


def members(store: Store, project: str) -> list[MemberView]:
    """Everybody with a role in a project, by name."""
    with store.read() as session:
        is_private = session.get(PrivateProject, project) is not None
        own = dict(session.execute(select(Membership.user, Membership.role).where(Membership.project == project)).all())
        people = session.execute(select(User.name, User.role).where(User.removed_at.is_(None)).order_by(User.name))
        rows = (_member(name, own.get(name), role, is_private) for name, role in people)
        return [member for member in rows if member is not None]


def _member(name: str, own: str | None, everywhere: str | None, is_private: bool) -> MemberView | None:
    counted = None if is_private and everywhere != Role.OWNER else everywhere
    roles = [Role(role) for role in (own, counted) if role]
    if not roles:
        return None
    highest = max(roles, key=lambda role: role.rank)
    return MemberView(name, highest, is_everywhere=own is None or Role(own) is not highest)
