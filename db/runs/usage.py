"""The hardware that a run used: device-hours, the energy its devices measured, and the names of its samples."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuchNode
from db.lookups import latest_attempt
from db.metrics.points import unpack
from db.metrics.series_names import public_name
from db.models import Attempt, Chunk, Node, Series, Task

SOURCE = "hardware"
ENERGY = re.compile(r"gpu\d+/energy_j")


@dataclass(frozen=True)
class Usage:
    """Over all attempts of a run."""

    device_hours: float
    energy_j: float | None
    """None where no device has a counter of its energy."""


def usage(store: Store, run_id: str, now: float) -> Usage:
    """Device-hours from the placement of each attempt to its end, and measured energy. Raises NoSuchRun."""
    with store.read() as session:
        latest_attempt(session, run_id)
        query = (
            select(Attempt, Task.devices)
            .join(Task, Task.fence == Attempt.fence)
            .where(Attempt.run_id == run_id, Attempt.placed_at.is_not(None))
        )
        device_s = sum(
            len(devices) * max(0.0, (attempt.ended_at or now) - (attempt.placed_at or now))
            for attempt, devices in session.execute(query)
        )
        return Usage(device_s / 3600, _energy_j(session, run_id))


def hardware_names(store: Store, run_id: str, node: str | None) -> list[str]:
    """Names of the hardware series, of all nodes or of one by its name or rank. Raises NoSuchRun, NoSuchNode."""
    with store.read() as session:
        latest_attempt(session, run_id)
        query = (
            select(Series)
            .join(Attempt, Attempt.fence == Series.fence)
            .where(Attempt.run_id == run_id, Series.source == SOURCE)
        )
        if node is not None:
            query = query.where(_is_on(session, run_id, node))
        return sorted({public_name(row) for row in session.scalars(query)})


def _is_on(session: Session, run_id: str, node: str) -> ColumnElement[bool]:
    """Whether a series is of a node; one name may stand for another node rank in each attempt. Raises NoSuchNode."""
    tasks = (
        select(Task.fence, Task.node_rank)
        .join(Attempt, Attempt.fence == Task.fence)
        .join(Node, Node.id == Task.node_id)
        .where(Attempt.run_id == run_id)
    )
    is_node = Task.node_rank == int(node) if node.isdecimal() else Node.name == node
    places = session.execute(tasks.where(is_node)).all()
    if not places:
        raise NoSuchNode(f"Run {run_id} has no node {node!r}: name one, or give its rank from 0.")
    return or_(*((Series.fence == fence) & (Series.node_rank == rank) for fence, rank in places))


def _energy_j(session: Session, run_id: str) -> float | None:
    """The growth of all energy counters while the run was sampled."""
    query = (
        select(Series)
        .join(Attempt, Attempt.fence == Series.fence)
        .where(Attempt.run_id == run_id, Series.source == SOURCE)
    )
    counters = [row for row in session.scalars(query) if ENERGY.fullmatch(row.tag)]
    grown = [row.last_value - _first_value(session, row.id) for row in counters]
    return sum(max(0.0, growth) for growth in grown) if grown else None


def _first_value(session: Session, series_id: int) -> float:
    first = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0, Chunk.seq == 0)
    return unpack(session.scalars(first).one())[0][1]
