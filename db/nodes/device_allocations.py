"""The runs that have devices now, for the picture of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from db.engine import Store
from db.models import Attempt, Run, Task
from db.scheduling.node_state import has_devices


@dataclass(frozen=True)
class Occupant:
    """A run that has devices allocated."""

    id: str
    name: str
    state: str
    ordinal: int
    """Its position in the order of all runs ever launched."""


def occupants(store: Store) -> list[Occupant]:
    """The runs that have devices allocated, oldest first."""
    first = select(Attempt.run_id, func.min(Attempt.fence).label("ordinal")).group_by(Attempt.run_id).subquery()
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
