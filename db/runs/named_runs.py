"""Find a run by what people call it: its id, `latest`, its name, or the beginning of its id."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Run

LATEST = "latest"
MOST = 20
"""Runs of one name that are told apart for who asks."""


class NamedRun(NamedTuple):
    """A run that a word may mean."""

    id: str
    name: str


def named_runs(store: Store, word: str) -> list[NamedRun]:
    """Return the runs that `word` may mean, newest first, at most `MOST`; archived ones only by their id."""
    with store.read() as session:
        if word == LATEST:
            return _newest(session, limit=1)
        for condition in _readings(word):
            if runs := _newest(session, condition):
                return runs
    return []


def _readings(word: str) -> list[ColumnElement[bool]]:
    """The conditions under which a run is meant by a word, the most exact first."""
    listed = Run.archived_at.is_(None)
    readings = [Run.id == word, (Run.name == word) & listed]
    is_beginning = word != "" and word.isascii() and word.isalnum() and word == word.lower()
    return [*readings, Run.id.startswith(word) & listed] if is_beginning else readings


def _newest(session: Session, condition: ColumnElement[bool] | None = None, limit: int = MOST) -> list[NamedRun]:
    query = select(Run.id, Run.name).where(Run.archived_at.is_(None) if condition is None else condition)
    newest = query.order_by(Run.created_at.desc(), Run.id).limit(limit)
    return [NamedRun(*row) for row in session.execute(newest)]
