"""Save, list and delete views of the list of runs."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import PrivateProject, SavedView
from db.people import audit
from db.people.visibility import visibility
from domain.people.audit import AuditAction
from domain.people.rights import Denied
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.search.parser import MOST_VIEWS, NamedView


def saved(store: Store) -> list[NamedView]:
    """All views by their names; without those that name a hidden project."""
    with store.read() as session:
        rows = session.scalars(select(SavedView).order_by(func.lower(SavedView.name), SavedView.name))
        views = [NamedView(name=row.name, **row.definition) for row in rows]
    return [view for view in views if not _names_hidden(view)]


def _names_hidden(view: NamedView) -> bool:
    """Whether a view is about a project that is hidden from the visitor."""
    visible = visibility()
    is_left_out = visible.only is not None and bool(view.project) and view.project not in visible.only
    texts = (view.name, view.project, view.filter)
    return is_left_out or any(project.lower() in text.lower() for project in visible.hidden for text in texts if text)


def save(store: Store, view: NamedView, now: float) -> None:
    """Save a view in place of one's own of that name. Raises Denied; InvalidRequest where there are too many."""
    definition = view.model_dump(mode="json", exclude={"name"})
    with store.write() as session:
        row = session.get(SavedView, view.name)
        if row is None:
            if (session.scalar(select(func.count()).select_from(SavedView)) or 0) >= MOST_VIEWS:
                raise InvalidRequest("name", f"At most {MOST_VIEWS} views can be saved; delete some first.")
            session.add(SavedView(name=view.name, definition=definition, saved_at=now, by=acting.rights().by))
        else:
            _check_maker(row, "change")
            row.definition, row.saved_at = definition, now
        audit.record(session, AuditAction.VIEW_SAVED, f"view {view.name}", _audited_project(session, view))


def forget(store: Store, name: str) -> None:
    """Delete a view of one's own; one that is not there stays so. Raises Denied."""
    with store.write() as session:
        if (row := session.get(SavedView, name)) is not None:
            _check_maker(row, "delete")
            project = _audited_project(session, NamedView(name=name, **row.definition))
            session.delete(row)
            audit.record(session, AuditAction.VIEW_DELETED, f"view {name}", project)


def _check_maker(view: SavedView, act: str) -> None:
    rights = acting.rights()
    if view.by not in (None, rights.by) and not rights.may(Action.OPERATE, None):
        sentence = f"The view {view.name!r} is {view.by}'s: only they and an admin may {act} it."
        raise Denied(f"{sentence} Save it by another name.")


def _audited_project(session: Session, view: NamedView) -> str | None:
    """The project whose managers read of a view in the audit log: a private one that its name tells, else its own."""
    private = sorted(session.scalars(select(PrivateProject.project)))
    return next((project for project in private if project.lower() in view.name.lower()), view.project or None)
