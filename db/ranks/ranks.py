"""Single ranks: their performance from the probe, their stack traces, and their collectives, compared."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import WrongState
from db.lookups import attempt_scope, latest_attempt, task_of_node
from db.models import Attempt, Node, Series, Task
from db.people import audit
from db.people.permission import permitted_run
from domain.collectives import CollectivesVerdict, NodeCollectives, RankCollectives, judge
from domain.messages import LIVE_STATES, Stacks
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.views import CollectivesView, NodeStacks, PositionView, RankView, StacksView

_TAG = re.compile(r"rank(\d+)/(step_time_s|data_wait_s|peak_memory_bytes)")


def ranks(store: Store, run_id: str) -> list[RankView]:
    """The ranks of a run's latest attempt that the probe has reported steps of. Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        rows = session.execute(
            select(Series, Node.name)
            .join(Task, (Task.fence == Series.fence) & (Task.node_rank == Series.node_rank))
            .join(Node, Node.id == Task.node_id)
            .where(Series.fence == attempt.fence, Series.source == "probe")
        )
        series_by_rank: dict[int, dict[str, Series]] = {}
        nodes: dict[int, str] = {}
        for series, node in rows:
            if match := _TAG.fullmatch(series.tag):
                series_by_rank.setdefault(int(match[1]), {})[match[2]] = series
                nodes[int(match[1])] = node
        return [_rank_view(rank, nodes[rank], series_by_rank[rank]) for rank in sorted(series_by_rank)]


def request_stacks(store: Store, run_id: str, now: float) -> None:
    """Request the stack traces of a live run's ranks. Raises NoSuchRun, WrongState, Denied."""
    with store.write() as session:
        run = permitted_run(session, Action.ACT, run_id)
        attempt = latest_attempt(session, run_id)
        if attempt.state not in LIVE_STATES:
            raise WrongState(f"Run {run_id} is {attempt.state}; only running ranks have a stack.")
        attempt.stacks_requested_at = now
        audit.record_of_run(session, AuditAction.STACKS_ASKED, run)


def stacks_reported(store: Store, node_id: str, fence: int, node_rank: int, stacks: Stacks) -> str:
    """Store a node's stack traces; return the run's id. Raises NotOwner, Superseded."""
    with store.write(attempt_scope(fence)) as session:
        task, attempt = task_of_node(session, node_id, fence, node_rank)
        task.stacks = stacks.model_dump(mode="json")
        return attempt.run_id


def stacks(store: Store, run_id: str) -> StacksView:
    """The latest request for stack traces and its answers so far. Raises NoSuchRun."""
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        rows = session.execute(
            select(Task, Node.name)
            .join(Node, Node.id == Task.node_id)
            .where(Task.fence == attempt.fence)
            .order_by(Task.node_rank)
        ).all()
        answers = [_answer(task, node) for task, node in rows if _is_of_newest(task, attempt)]
        requested_at = attempt.stacks_requested_at
        return StacksView(requested_at, len(answers) == len(rows) and requested_at is not None, answers)


def _is_of_newest(task: Task, attempt: Attempt) -> bool:
    return bool(task.stacks) and task.stacks["requested_at"] == attempt.stacks_requested_at  # type: ignore[index]


def _answer(task: Task, node: str) -> NodeStacks:
    stacks = Stacks.model_validate(task.stacks)
    return NodeStacks(task.node_rank, node, stacks.at, stacks.ranks)


def _rank_view(rank: int, node: str, series: dict[str, Series]) -> RankView:
    last = {name: row.last_value for name, row in series.items()}
    memory = last.get("peak_memory_bytes")
    return RankView(
        rank=rank,
        node=node,
        step=max(row.last_step for row in series.values()),
        step_time_s=last.get("step_time_s"),
        data_wait_s=last.get("data_wait_s"),
        peak_memory_bytes=None if memory is None else int(memory),
        at=max(row.last_wall for row in series.values()),
    )


# Collectives of each rank, as nodes report them, and the verdict over all nodes of an attempt.


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
