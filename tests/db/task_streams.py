"""One file of one task on its way into the store, where workers send many at once."""

from __future__ import annotations

from db.engine import Store
from db.tasks.task_reports import Arrival, FileState, StreamKey, streams_arrived
from domain.messages import PointBatch


def points_arrived(store: Store, node_id: str, fence: int, node_rank: int, batch: PointBatch) -> Arrival:
    """Store the points of one byte range as `streams_arrived` does. Raises NotOwner, Superseded."""
    key = StreamKey(fence, node_rank, batch.path, batch.generation)
    (outcome,) = streams_arrived(store, node_id, [(key, batch)])
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, Arrival)
    return outcome


def file_for_append(
    store: Store, node_id: str, fence: int, node_rank: int, path: str, generation: int
) -> tuple[int, int]:
    """(file id, durable bytes) of a mirrored file, registered if it is new. Raises NotOwner, Superseded."""
    (outcome,) = streams_arrived(store, node_id, [(StreamKey(fence, node_rank, path, generation), None)])
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, FileState)
    return outcome.id, outcome.size_bytes
