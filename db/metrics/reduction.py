"""Read how a run averages its gradients, from the points that the probe records of DistributedDataParallel."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.lookups import attempt_spec, latest_attempt
from db.models import PairPass, Series, Task
from domain.performance.efficiency import FIGURES, TAG, Reduction
from domain.scheduling import resizing


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
