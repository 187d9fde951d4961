"""The runs that have devices just now, as a picture of the cluster needs them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from db.engine import Store
from db.models import Attempt, Run, Task
from db.scheduling.node_state import has_devices


@dataclass(frozen=True)
class Occupant:
    """A run that nodes hold devices for."""

    id: str
    name: str
    state: str
    ordinal: int
    """Its place among all runs ever launched: runs side by side have numbers side by side."""


def occupants(store: Store) -> list[Occupant]:
    """Oldest first."""
    first = (
        select(Attempt.run_id, func.min(Attempt.fence).label("ordinal")).group_by(Attempt.run_id).subquery()
    )
    held = select(Task.fence).where(has_devices())
    query = (
        select(Run.id, Run.name, Attempt.state, first.c.ordinal)
        .join(Attempt, Attempt.run_id == Run.id)
        .join(first, first.c.run_id == Run.id)
        .where(Attempt.fence.in_(held))
        .order_by(first.c.ordinal)
    )
    with store.read() as session:
        return [Occupant(*row) for row in session.execute(query)]
