"""How fast checkpoints and logs fill the server's disk, and which checkpoints could go."""

from __future__ import annotations

import shlex

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.checkpoints.checkpoint_queries import listed
from db.checkpoints.needed import needed
from db.engine import Store
from db.models import Attempt, Checkpoint, File, Run
from db.people.visibility import visible_runs
from domain.checkpoint_use.forecast import SOON_S, Arrivals, Deletable
from domain.messages import LIVE_STATES

MOST_DELETABLE = 5
MOST_LOOKED_AT = 40
"""Large checkpoints of which most may be needed."""


def bytes_per_s(store: Store, now: float) -> float:
    """The rate at which checkpoints and logs arrive on the server's disk; 0 while no run trains."""
    with store.read() as session:
        live = session.execute(_LIVE).all()
        if not live:
            return 0.0
        moments = select(Checkpoint.created_at, Checkpoint.size_bytes).where(
            Checkpoint.created_at > now - SOON_S, Checkpoint.complete, Checkpoint.location.is_(None)
        )
        rate = Arrivals([(at, size_bytes) for at, size_bytes in session.execute(moments)]).rate(now)
        return rate + sum(bytes_ / max(1.0, now - started_at) for started_at, bytes_ in live)


_LIVE = (
    select(func.coalesce(Attempt.started_at, Attempt.created_at), func.coalesce(func.sum(File.size_bytes), 0))
    .outerjoin(File, File.fence == Attempt.fence)
    .where(Attempt.state.in_(LIVE_STATES))
    .group_by(Attempt.fence)
)


def deletable(store: Store) -> list[Deletable]:
    """The largest checkpoints of visible runs that are neither latest nor best, nor pinned or needed."""
    query = (
        select(Checkpoint.id, Checkpoint.path, Checkpoint.size_bytes, Run.id, Run.name)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .join(Run, Run.id == Attempt.run_id)
        .where(Checkpoint.complete, Checkpoint.deleted_at.is_(None), Checkpoint.location.is_(None), visible_runs())
        .order_by(Checkpoint.size_bytes.desc(), Checkpoint.id)
        .limit(MOST_LOOKED_AT)
    )
    with store.read() as session:
        rows = session.execute(query).all()
        kept = {run_id: _kept(session, run_id) for run_id in {run_id for *_, run_id, _ in rows}}
        free = [row for row in rows if row[0] not in kept[row[3]]]
    return [
        Deletable(run_id, name, checkpoint_id, path, size_bytes, _command(run_id, checkpoint_id))
        for checkpoint_id, path, size_bytes, run_id, name in free[:MOST_DELETABLE]
    ]


def _kept(session: Session, run_id: str) -> set[int]:
    return {*needed(session, run_id), *(view.id for view in listed(session, run_id) if view.latest or view.best)}


def _command(run_id: str, checkpoint_id: int) -> str:
    """Return a command that names it by its id: another attempt may have saved a newer one of the same name."""
    return shlex.join(["rankzero", "checkpoint", "delete", run_id, str(checkpoint_id)])
