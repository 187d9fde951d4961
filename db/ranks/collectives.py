"""Collectives of each rank, as nodes report them, and the verdict over all nodes of an attempt."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.lookups import attempt_scope, latest_attempt, task_of_node
from db.models import Node, Task
from domain.collectives import CollectivesVerdict, NodeCollectives, RankCollectives, judge
from domain.views import CollectivesView, PositionView


def collectives_reported(store: Store, node_id: str, fence: int, node_rank: int, collectives: NodeCollectives) -> None:
    """Store the latest collectives of a node's ranks. Raises NotOwner, Superseded."""
    with store.write(attempt_scope(fence)) as session:
        task, _ = task_of_node(session, node_id, fence, node_rank)
        task.collectives = collectives.model_dump(mode="json")


def verdict_of_attempt(store: Store, fence: int) -> CollectivesVerdict | None:
    """Where the attempt's ranks disagree, by what all its nodes reported last."""
    with store.read() as session:
        return verdict(_of_nodes(session, fence))


def collectives(store: Store, run_id: str) -> CollectivesView:
    """Where each rank of the latest attempt stood when it was asked last. Raises NoSuchRun."""
    with store.read() as session:
        nodes = _of_nodes(session, latest_attempt(session, run_id).fence)
    records = _by_rank(nodes)
    return CollectivesView({rank: _position(record) for rank, record in records.items()}, verdict(nodes))


def node_records(store: Store, run_id: str) -> list[tuple[str, NodeCollectives]]:
    """(node, its ranks' latest collectives) of the latest attempt, by node rank. Raises NoSuchRun."""
    with store.read() as session:
        fence = latest_attempt(session, run_id).fence
        query = select(Node.name, Task.collectives).join(Node, Node.id == Task.node_id)
        rows = session.execute(query.where(Task.fence == fence).order_by(Task.node_rank)).all()
        return [(node, NodeCollectives.model_validate(stored or {})) for node, stored in rows]


def _of_nodes(session: Session, fence: int) -> list[NodeCollectives]:
    stored = session.scalars(select(Task.collectives).where(Task.fence == fence).order_by(Task.node_rank))
    return [NodeCollectives.model_validate(collectives) for collectives in stored if collectives]


def _by_rank(nodes: Sequence[NodeCollectives]) -> dict[int, RankCollectives]:
    return {record.rank: record for record in sorted((r for node in nodes for r in node.ranks), key=lambda r: r.rank)}


def verdict(nodes: Sequence[NodeCollectives]) -> CollectivesVerdict | None:
    """Return where the ranks of an attempt's nodes left their common path."""
    return judge(_by_rank(nodes), is_stalled=any(node.is_stalled for node in nodes))


def _position(record: RankCollectives) -> PositionView:
    call = record.position
    if call is None:
        return PositionView(None, None, [], None)
    return PositionView(call.sequence, call.operation, call.sizes, call.retired)
