"""Read what the estimates of a run's arithmetic are counted from."""

from __future__ import annotations

from sqlalchemy import select

from db.engine import Store
from db.lookups import attempt_spec, latest_attempt
from db.models import Node, Series, Task
from domain.performance.efficiency import PARAMETERS, TOKENS, Arithmetic
from domain.scheduling import resizing


def arithmetic_of(store: Store, run_id: str) -> Arithmetic | None:
    """Return the size, the tokens per second and the device of the latest attempt; None without one of the first two.

    Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        query = select(Series.tag, Series.last_value).where(
            Series.fence == attempt.fence, Series.source == "probe", Series.tag.in_((PARAMETERS, TOKENS))
        )
        values = {tag: value for tag, value in session.execute(query) if value}
        if len(values) < 2:
            return None
        nodes = select(Node.devices).join(Task, Task.node_id == Node.id).where(Task.fence == attempt.fence)
        devices = [device for of_node in session.scalars(nodes) for device in of_node]
        names = {device["name"] if device["kind"] == "cuda" else "" for device in devices}
        ranks = resizing.effective(attempt_spec(session, attempt), attempt.changes).world_size
    return Arithmetic(values[PARAMETERS], values[TOKENS], ranks, names.pop() if len(names) == 1 else "")
