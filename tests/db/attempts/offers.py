"""Runs of a cluster as they are shown, and the checkpoints that its nodes offer and store."""

from __future__ import annotations

from db.checkpoints import checkpoint_reports
from db.runs import run_queries
from domain.messages import CheckpointOffer


def view(cluster, run_id):
    return run_queries.run(cluster.store, run_id, cluster.now)


def offer(path="work/step_10.pt", step=10, sha="a" * 64) -> CheckpointOffer:
    return CheckpointOffer(path=path, step=step, size_bytes=3, sha256=sha, written_at=50.0)


def store_checkpoint(cluster, fence, **more) -> int:
    row = checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, offer(**more), cluster.now)
    checkpoint_reports.completed(cluster.store, row.id, cluster.now)
    return row.id
