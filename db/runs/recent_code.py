"""What the newest runs train, for the launch form."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select

from db.engine import Store
from db.models import Run

LOOKED_AT = 200
"""Newest runs that are looked at, so that a large store costs no more than a small one."""


class Code(NamedTuple):
    """A run's target, and what starts in it."""

    target: str
    entry: str | None
    module: str | None


def recent_code(store: Store) -> list[Code]:
    """Return what the newest runs train, each once, the newest first."""
    parts = [Run.spec[name].as_string() for name in Code._fields]
    query = select(*parts).order_by(Run.created_at.desc(), Run.id).limit(LOOKED_AT)
    with store.read() as session:
        return list(dict.fromkeys(Code(*row) for row in session.execute(query)))
