"""Save, list and delete views of the list of runs."""

from __future__ import annotations

from sqlalchemy import delete, func, select

from db.engine import Store
from db.models import SavedView
from domain.errors import InvalidRequest
from domain.search.parser import MOST_VIEWS, NamedView


def saved(store: Store) -> list[NamedView]:
    """All views by their names."""
    with store.read() as session:
        rows = session.scalars(select(SavedView).order_by(func.lower(SavedView.name), SavedView.name))
        return [NamedView(name=row.name, **row.definition) for row in rows]


def save(store: Store, view: NamedView, now: float) -> None:
    """Save a view instead of an earlier one of its name. Raises InvalidRequest where there are too many."""
    definition = view.model_dump(mode="json", exclude={"name"})
    with store.write() as session:
        row = session.get(SavedView, view.name)
        if row is None:
            if (session.scalar(select(func.count()).select_from(SavedView)) or 0) >= MOST_VIEWS:
                raise InvalidRequest("name", f"At most {MOST_VIEWS} views can be saved; delete some first.")
            session.add(SavedView(name=view.name, definition=definition, saved_at=now))
        else:
            row.definition, row.saved_at = definition, now


def forget(store: Store, name: str) -> None:
    """Delete a view; one that is not there stays so."""
    with store.write() as session:
        session.execute(delete(SavedView).where(SavedView.name == name))
