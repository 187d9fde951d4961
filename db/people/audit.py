"""The audit log: what somebody does is written down in the transaction that does it, and never changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store, StoreGone
from db.models import AuditEntry, Run
from db.people.ownership import ObjectKind, owned
from domain.clock import SYSTEM_CLOCK
from domain.people.audit import AuditAction, AuditEntryView
from domain.people.rights import Denied, Rights
from domain.people.roles import Action

OBJECT_CHARACTERS = 300
"""The audit log keeps so many characters of a name that a person chose."""
REFUSAL_EVERY_S = 60.0
"""Refused sign-ins with one name from one address are written down once in this time."""
MOST_REFUSALS = 100
"""Refused sign-ins of all names and addresses that are written down in that time."""
DOWNLOAD_LASTS_S = 86400.0
"""A download that is resumed within this time after it began is the same download; so is an agent's wait for a run."""
ROWS_AT_ONCE = 1000


def record(
    session: Session | Store,
    action: AuditAction,
    object_name: str,
    project: str | None = None,
    more: dict[str, Any] | None = None,
    by: str | None = None,
) -> None:
    """Write down what the actor does to an object (`run ab12…`, `node gpu-1`), in the session's transaction.

    `by`: who signs it where nobody is signed in yet. A store is given where nothing else is written."""
    if isinstance(session, Store):
        with session.write() as own_session:
            record(own_session, action, object_name, project, more, by)
        return
    rights = acting.rights()
    session.add(
        AuditEntry(
            at=SYSTEM_CLOCK.wall(),
            by=by or rights.by,
            via=rights.via,
            action=action.value,
            object=object_name[:OBJECT_CHARACTERS],
            project=project,
            address=acting.address(),
            more=more,
        )
    )


def record_of_run(session: Session, action: AuditAction, run: Run, more: dict[str, Any] | None = None) -> None:
    """Write down what the actor does to a run, by its name and in its project."""
    record(session, action, f"run {run.id}", run.project, {"name": run.name, **(more or {})})


def record_download(
    store: Store, object_name: str, of: tuple[ObjectKind, str] | None = None, *, is_resumed: bool = False
) -> None:
    """Write down that something is downloaded; once where it is resumed at a later byte.

    `of`: the object whose project the entry belongs to, the first one that the actor sees.
    A store that takes no writes does not keep anybody from rescuing files: the log of the dashboard has it then."""
    try:
        with store.write() as session:
            if not (is_resumed and _is_written_lately(session, AuditAction.DOWNLOADED, object_name)):
                record(session, AuditAction.DOWNLOADED, object_name, _visible_project(session, of) if of else None)
    except (DBAPIError, PoolTimeout, StoreGone):
        log.warning("not in the audit log: %s downloaded %s", acting.rights().by, object_name)


def record_tool_call(store: Store, tool: str, more: dict[str, Any], *, is_once: bool) -> None:
    """Write down that an agent calls a tool; with `is_once`, once a day for what it is called on."""
    object_name = f"tool {tool}" + (f" on {more.get('run')}" if is_once else "")
    with store.write() as session:
        own = AuditEntry.via == acting.rights().via
        if not (is_once and _is_written_lately(session, AuditAction.TOOL_CALLED, object_name, own)):
            record(session, AuditAction.TOOL_CALLED, object_name, more=more)


def record_refused_sign_in(store: Store, name: str) -> None:
    """Write down that a sign-in was refused; one entry a minute for each name and address, however many try."""
    with store.read() as session:
        since = SYSTEM_CLOCK.wall() - REFUSAL_EVERY_S
        query = select(AuditEntry.object, AuditEntry.address).where(
            AuditEntry.at > since, AuditEntry.action == AuditAction.SIGN_IN_REFUSED
        )
        lately = session.execute(query.limit(MOST_REFUSALS)).all()
    object_name = name[:OBJECT_CHARACTERS] or "somebody"
    if len(lately) < MOST_REFUSALS and (object_name, acting.address()) not in {tuple(row) for row in lately}:
        record(store, AuditAction.SIGN_IN_REFUSED, object_name)


@dataclass(frozen=True)
class AuditFilter:
    """Which entries are asked for; None: all."""

    by: str | None = None
    action: AuditAction | None = None
    since: float | None = None
    project: str | None = None
    before: int | None = None
    """Only entries older than the one with this id."""


def entries(store: Store, chosen: AuditFilter, limit: int) -> list[AuditEntryView]:
    """The newest entries that the actor may read, at most `limit`, newest first."""
    query = select(AuditEntry).where(_readable(acting.rights()), *_conditions(chosen))
    with store.read() as session:
        rows = session.scalars(query.order_by(AuditEntry.id.desc()).limit(limit))
        return [AuditEntryView.model_validate(row, from_attributes=True) for row in rows]


def all_entries(store: Store, chosen: AuditFilter) -> Iterator[AuditEntryView]:
    """All entries that the actor may read, newest first, read in batches that hold no transaction open."""
    while True:
        batch = entries(store, chosen, ROWS_AT_ONCE)
        yield from batch
        if len(batch) < ROWS_AT_ONCE:
            return
        chosen = replace(chosen, before=batch[-1].id)


def signers(store: Store) -> list[str]:
    """The names of all who signed an entry that the actor may read, sorted."""
    query = select(AuditEntry.by).where(AuditEntry.by.is_not(None), _readable(acting.rights())).distinct()
    with store.read() as session:
        return sorted(name for name in session.scalars(query) if name)


log = logging.getLogger("rankzero")


def _visible_project(session: Session, of: tuple[ObjectKind, str]) -> str | None:
    rights = acting.rights()
    return next((one.project for one in owned(session, *of) if one.project and rights.sees(one.project, one.by)), None)


def _is_written_lately(session: Session, action: AuditAction, object_name: str, *further: ColumnElement[bool]) -> bool:
    """Whether the actor did this within the time of one download."""
    begun = select(AuditEntry.id).where(
        AuditEntry.at > SYSTEM_CLOCK.wall() - DOWNLOAD_LASTS_S,
        AuditEntry.by == acting.rights().by,
        AuditEntry.action == action,
        AuditEntry.object == object_name[:OBJECT_CHARACTERS],
        *further,
    )
    return session.scalar(begun.limit(1)) is not None


def _conditions(chosen: AuditFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if chosen.by is not None:
        conditions.append(AuditEntry.by == chosen.by)
    if chosen.action is not None:
        conditions.append(AuditEntry.action == chosen.action.value)
    if chosen.since is not None:
        conditions.append(AuditEntry.at >= chosen.since)
    if chosen.project is not None:
        conditions.append(AuditEntry.project == chosen.project)
    if chosen.before is not None:
        conditions.append(AuditEntry.id < chosen.before)
    return conditions


def _readable(rights: Rights) -> ColumnElement[bool]:
    """The entries that these rights may read: those of the installation, and those of projects they manage.

    Raises Denied where there are none."""
    if (refusal := rights.refusal_anywhere(Action.AUDIT)) is not None:
        raise Denied(refusal)
    if rights.only_project is not None:
        rights.check(Action.AUDIT, rights.only_project)
        return AuditEntry.project == rights.only_project
    managed = {project for project in rights.in_projects if rights.may(Action.AUDIT, project)}
    if not rights.may(Action.AUDIT, None):
        return AuditEntry.project.in_(managed)
    if rights.is_owner:
        return AuditEntry.id.is_not(None)
    return or_(AuditEntry.project.is_(None), AuditEntry.project.not_in(rights.private - managed))
