"""Read what a run's efficiency is judged by: its arithmetic, and how it averages its gradients."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.lookups import attempt_spec, latest_attempt
from db.models import Node, PairPass, Series, Task
from domain.performance.efficiency import FIGURES, PARAMETERS, TAG, TOKENS, Arithmetic, Reduction
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


def reduction_of(store: Store, run_id: str) -> tuple[Reduction, int, float | None] | None:
    """Return the latest attempt's gradient reduction, its world size, and the bytes per second of its slowest link.

    None where DistributedDataParallel was not seen. Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        tags = [TAG + name for name in FIGURES]
        query = select(Series.tag, Series.last_value).where(
            Series.fence == attempt.fence, Series.source == "probe", Series.tag.in_(tags)
        )
        figures = {tag.removeprefix(TAG): value for tag, value in session.execute(query) if value is not None}
        if "buckets" not in figures:
            return None
        world_size = resizing.effective(attempt_spec(session, attempt), attempt.changes).world_size
        return _reduction(figures), world_size, _slowest_link(session, attempt.fence)


def _reduction(figures: dict[str, float]) -> Reduction:
    facts = {
        "buckets": int(figures.pop("buckets")),
        "rebuilt": bool(figures.pop("rebuilt")),
        "static_graph": bool(figures.pop("static_graph")),
    }
    return Reduction(**facts, **figures)  # type: ignore[arg-type]


def _slowest_link(session: Session, fence: int) -> float | None:
    nodes = select(Task.node_id).where(Task.fence == fence)
    slowest = select(func.min(PairPass.bytes_per_s))
    return session.scalar(slowest.where(PairPass.node_a.in_(nodes), PairPass.node_b.in_(nodes)))
