"""Read how the disks of a run's nodes filled, from the samples of its hardware and the nodes' heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from db.engine import Store
from db.metrics.points import unpack
from db.models import Chunk, Node, Series, Task
from domain.alerts.judgement import FRESH_S

TAG = "disk_used_bytes"
CHUNKS = 3
"""The last ones: more than half an hour, at a sample every 5 s."""


@dataclass(frozen=True)
class NodeDisk:
    """The disk of a node's data directory."""

    node: str
    node_rank: int
    free_bytes: int
    samples: list[tuple[float, float]]
    """Wall time and bytes used, oldest first."""


def disks(store: Store, fence: int, now: float) -> list[NodeDisk]:
    """The disks of an attempt's nodes, without those that are silent or whose free space is not known."""
    query = (
        select(Series.id, Task.node_rank, Node.name, Node.load)
        .join(Task, (Task.fence == Series.fence) & (Task.node_rank == Series.node_rank))
        .join(Node, Node.id == Task.node_id)
        .where(Series.fence == fence, Series.source == "hardware", Series.tag == TAG)
        .where(Node.last_seen >= now - FRESH_S)
        .order_by(Task.node_rank)
    )
    with store.read() as session:
        found = []
        for series_id, rank, name, load in session.execute(query).all():
            if not (load or {}).get("disk_total_bytes"):
                continue
            last = select(Chunk.points).where(Chunk.series_id == series_id, Chunk.level == 0)
            blobs = list(session.scalars(last.order_by(Chunk.seq.desc()).limit(CHUNKS)))
            samples = [(wall, value) for _, value, wall in unpack(*reversed(blobs))]
            found.append(NodeDisk(name, rank, int(load["disk_free_bytes"]), samples))
        return found
