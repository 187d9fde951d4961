"""The secrets of people and projects, and those that attempts were given; values are here as ciphertexts only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import URL, ColumnElement, and_, create_engine, delete, false, inspect, or_, select
from sqlalchemy.orm import Session

from db import acting, postgres
from db.engine import Store
from db.exceptions import NoSuch
from db.lookups import task_is_wanted
from db.models import Attempt, AttemptSecret, Run, Secret, Task
from db.people import audit
from db.people.users import rights_in
from domain.messages import TERMINAL_STATES
from domain.people.audit import AuditAction
from domain.people.rights import NOBODY, PROGRAM
from domain.people.roles import Action
from domain.people.secret_views import SecretView


class NoSuchSecret(NoSuch):
    """There is no secret of that name."""


@dataclass(frozen=True)
class SecretOwner:
    """A person, or a project: one of the two."""

    user: str | None = None
    project: str | None = None

    def __str__(self) -> str:
        return f"project {self.project}" if self.user is None else self.user

    @property
    def rows(self) -> ColumnElement[bool]:
        """The condition on its secrets."""
        return Secret.project == self.project if self.user is None else Secret.user == self.user


def put(store: Store, owner: SecretOwner, name: str, ciphertext: bytes, by: str | None, now: float) -> SecretView:
    """Add or replace a secret."""
    with store.write() as session:
        row = session.scalar(select(Secret).where(owner.rows, Secret.name == name))
        if row is None:
            row = Secret(user=owner.user, project=owner.project, name=name)
            session.add(row)
        row.ciphertext, row.by, row.set_at = ciphertext, by, now
        audit.record(session, AuditAction.SECRET_SET, f"secret {name} of {owner}", owner.project)
        return _view(row)


def remove(store: Store, owner: SecretOwner, name: str) -> SecretView:
    """Remove a secret; live attempts keep it until they have ended. Raises NoSuchSecret."""
    with store.write() as session:
        row = session.scalar(select(Secret).where(owner.rows, Secret.name == name))
        if row is None:
            raise NoSuchSecret(f"There is no secret {name} of {owner}.")
        session.delete(row)
        forget_ended(session)
        audit.record(session, AuditAction.SECRET_REMOVED, f"secret {name} of {owner}", owner.project)
        return _view(row)


def of_owners(store: Store, user: str | None, projects: Collection[str] | None) -> list[SecretView]:
    """The secrets of a person (None: of none) and of these projects (None: of all), by name."""
    of_projects = Secret.project.is_not(None) if projects is None else Secret.project.in_(projects)
    query = select(Secret).where(or_(_of_person(user), of_projects)).order_by(Secret.name, Secret.project)
    with store.read() as session:
        return [_view(row) for row in session.scalars(query)]


def projects_with_secrets(store: Store) -> list[str]:
    """The projects that have secrets."""
    with store.read() as session:
        query = select(Secret.project).where(Secret.project.is_not(None)).distinct().order_by(Secret.project)
        return [project for project in session.scalars(query) if project is not None]


def has_any(store: Store) -> bool:
    """Whether anything in the store is encrypted."""
    with store.read() as session:
        return any(session.scalar(select(column).limit(1)) for column in (Secret.name, AttemptSecret.name))


@dataclass(frozen=True)
class StoredSecret:
    """A secret with its ciphertext."""

    owner: SecretOwner
    name: str
    ciphertext: bytes


def usable(session: Session, user: str | None, project: str | None, names: Collection[str]) -> dict[str, StoredSecret]:
    """The secrets of these names that a run of this person in this project gets: the person's before the project's.

    None: those of no person, or of no project."""
    mine_last = Secret.user.is_not(None)
    of_project = false() if project is None else Secret.project == project
    query = select(Secret).where(Secret.name.in_(names), or_(_of_person(user), of_project))
    rows = session.scalars(query.order_by(mine_last))
    return {row.name: StoredSecret(SecretOwner(row.user, row.project), row.name, row.ciphertext) for row in rows}


def _of_person(user: str | None) -> ColumnElement[bool]:
    return false() if user is None else Secret.user == user


def looked_up(where: Path | str) -> list[StoredSecret]:
    """All secrets in a store's file, or in the database of a URL, which are only read. Raises StoreUnusable."""
    if isinstance(where, str):
        engine = postgres.open_engine(postgres.parse_url(where), pool_size=1)
    else:
        query = {"mode": "ro", "uri": "true"}
        engine = create_engine(URL.create("sqlite", database=where.absolute().as_uri(), query=query))
    try:
        if not inspect(engine).has_table(Secret.__tablename__):
            return []
        with Session(engine) as session:
            rows = session.scalars(select(Secret).order_by(Secret.name)).all()
            return [StoredSecret(SecretOwner(row.user, row.project), row.name, row.ciphertext) for row in rows]
    finally:
        engine.dispose()


def given(store: Store, fence: int) -> dict[str, bytes]:
    """The ciphertexts of what an attempt was given."""
    with store.read() as session:
        return given_in(session, fence)


def given_in(session: Session, fence: int) -> dict[str, bytes]:
    """The ciphertexts of what an attempt was given, in a transaction."""
    rows = session.scalars(select(AttemptSecret).where(AttemptSecret.fence == fence))
    return {row.name: row.ciphertext for row in rows}


@dataclass(frozen=True)
class Receiver:
    """The attempt of a run that is given secrets, and for whom it trains."""

    run_id: str
    fence: int
    by: str | None
    project: str
    may_launch: bool
    """Whether who opened the attempt may launch in the project now: its secrets are for them alone."""
    is_bound: bool
    """Whether a token for one project alone opened it, or what it goes on with: it uses no secret of its person."""


def give(session: Session, receiver: Receiver, secret: StoredSecret, ciphertext: bytes) -> None:
    """Record what an attempt is given, in the audit log by its name."""
    session.add(AttemptSecret(fence=receiver.fence, name=secret.name, ciphertext=ciphertext))
    with acting.on_behalf(receiver.by, f"run {receiver.run_id}"):
        name = f"secret {secret.name} of {secret.owner}"
        audit.record(session, AuditAction.SECRET_GIVEN, name, receiver.project, {"run": receiver.run_id})


def receiver(session: Session, run_id: str, fence: int) -> Receiver | None:
    """The attempt of a run, with the person and the project whose secrets it gets; None once it has ended."""
    query = select(Run.by, Run.project, Attempt.by.label("opened_by"), Attempt.only_project)
    is_live = Attempt.state.not_in(TERMINAL_STATES)
    attempts = query.join(Attempt, Attempt.run_id == Run.id).where(Attempt.fence == fence, is_live)
    if (row := session.execute(attempts).one_or_none()) is None:
        return None
    rights = PROGRAM if row.opened_by is None else rights_in(session, row.opened_by) or NOBODY
    may_launch = replace(rights, only_project=row.only_project).may(Action.LAUNCH, row.project)
    return Receiver(run_id, fence, row.by, row.project, may_launch, is_bound=row.only_project is not None)


def forget_ended(session: Session) -> None:
    """Delete what attempts were given that have ended on all of their nodes."""
    at_work = select(Task.fence).join(Attempt, Attempt.fence == Task.fence)
    at_work = at_work.where(task_is_wanted())
    ended = select(Attempt.fence).where(Attempt.state.in_(TERMINAL_STATES))
    session.execute(
        delete(AttemptSecret).where(and_(AttemptSecret.fence.in_(ended), AttemptSecret.fence.not_in(at_work)))
    )


def _view(row: Secret) -> SecretView:
    return SecretView(name=row.name, user=row.user, project=row.project, by=row.by, set_at=row.set_at)
