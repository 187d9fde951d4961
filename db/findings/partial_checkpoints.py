"""Says which checkpoints of ended attempts never arrived whole: a run may have succeeded all the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sqlalchemy import and_, bindparam, exists, select
from sqlalchemy.orm import Session, aliased

from db.models import Attempt, Checkpoint, Node, Task
from domain.messages import TERMINAL_STATES
from domain.text.formats import size
from domain.views import FindingView

KIND = "checkpoint never arrived"
MOST_NAMED = 10
_NEWER = aliased(Checkpoint)
_HAS_WHOLE = exists().where(
    _NEWER.fence == Checkpoint.fence, _NEWER.node_rank == Checkpoint.node_rank,
    _NEWER.path == Checkpoint.path, _NEWER.complete,
)  # fmt: skip
_NEVER_ARRIVED = (Attempt.state.in_(TERMINAL_STATES), Checkpoint.complete.is_(False), ~_HAS_WHOLE)
_OF_FENCES = (
    select(Checkpoint)
    .join(Attempt, Attempt.fence == Checkpoint.fence)
    .where(Checkpoint.fence.in_(bindparam("fences", expanding=True)), *_NEVER_ARRIVED)
    .order_by(Checkpoint.id)
)


def first_not_whole(session: Session, fences: Sequence[int]) -> dict[int, str]:
    """Return a line for each of these attempts that ended with a checkpoint that is not whole, by fence."""
    lines = dict[int, str]()
    for checkpoint in session.scalars(_OF_FENCES, {"fences": fences}) if fences else ():
        lines.setdefault(checkpoint.fence, f"{KIND}: {_sentence(checkpoint)}")
    return lines


def checkpoints_not_whole(session: Session, run_id: str, attempt: int | None = None) -> list[FindingView]:
    """Return a finding for each ended attempt and node with a checkpoint that is not whole on the server."""
    of_task = and_(Task.fence == Checkpoint.fence, Task.node_rank == Checkpoint.node_rank)
    query = (
        select(Checkpoint, Attempt, Node.name)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .join(Task, of_task)
        .outerjoin(Node, Node.id == Task.node_id)
        .where(Attempt.run_id == run_id, *_NEVER_ARRIVED)
        .order_by(Attempt.number, Checkpoint.node_rank, Checkpoint.id)
    )
    if attempt is not None:
        query = query.where(Attempt.number == attempt)
    rows = [(checkpoint, of, node) for checkpoint, of, node in session.execute(query)]
    by_task = groupby(rows, key=lambda row: (row[1].number, row[0].node_rank, row[2]))
    return [
        _view(number, node_rank, node or "that is no longer registered", [row[0] for row in task], run_id)
        for (number, node_rank, node), task in by_task
    ]


def _view(attempt: int, node_rank: int, node: str, partial: list[Checkpoint], run_id: str) -> FindingView:
    sentences = [_sentence(checkpoint) for checkpoint in partial[:MOST_NAMED]]
    if more := len(partial) - len(sentences):
        sentences.append(f"And {more} more.")
    return FindingView(
        attempt=attempt,
        node_rank=node_rank,
        kind=KIND,
        evidence=" ".join(sentences),
        meaning="The attempt ended before the server had the whole file: it can be neither downloaded nor resumed "
        "from.",
        fix=f"It may still lie on node {node}, in the worker's data folder below "
        f"runs/{run_id}/attempts/{attempt}/node{node_rank}/. Send it again on the Checkpoints tab; "
        "else resume from an earlier checkpoint.",
        first_at=max(checkpoint.created_at for checkpoint in partial),
        gone_at=None,
    )


def _sentence(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.path}: {size(checkpoint.received_bytes)} of {size(checkpoint.size_bytes)} arrived."
