"""Elastic runs: at a checkpoint an attempt ends, so that the next one uses new nodes or leaves a draining one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.attempts.new_attempt import by_policy, find_checkpoint
from db.engine import Store
from db.lookups import add_history
from db.models import Attempt, Checkpoint, Node, Run, Series, Task
from db.scheduling import queue_placement
from db.scheduling.expected_ends import expected_ends
from db.scheduling.node_state import node_states
from domain.liveness import LOST_AFTER_S
from domain.messages import State
from domain.recovery import UnclearCheckpoint
from domain.scheduling.models import NodeState, ResourceRequest
from domain.scheduling.placement import place
from domain.spec import RunSpec
from domain.text.formats import MOST_NAMED, agree, as_list, plural

GROWS_AFTER_S = 60.0
GROWS_AFTER_STARTS = 10
"""An attempt trains at least this many times its startup time before it ends for more nodes, so that starting takes at
most a tenth of the time."""


def resize_at_checkpoint(
    store: Store,
    checkpoint_id: int,
    now: float,
    grows_after_s: float = GROWS_AFTER_S,
    lost_after_s: float = LOST_AFTER_S,
) -> str | None:
    """Decide at a complete checkpoint whether an elastic run continues on other nodes, and if so request the end of
    its attempt. Returns the run's id when the attempt is to end, else None.

    The decision is made in a read transaction, which blocks no writer; it is stored if the attempt still runs."""
    with store.read() as session:
        elastic = _elastic_attempt(session, checkpoint_id)
        if elastic is None:
            return None
        attempt, spec, checkpoint = elastic
        if not _can_go_on(session, attempt.run_id):
            return None
        current_nodes = _nodes(session, attempt.fence)
        has_waited = now - (attempt.started_at or now) >= _pause_s(session, attempt, grows_after_s)
        may_grow = len(current_nodes) < spec.nodes and has_waited
        if not (may_grow or any(current_nodes.values())):
            return None
        all_nodes = node_states(session, now, expected_ends(session, now), lost_after_s=lost_after_s)
        turn = attempt.turn_since or attempt.created_at
        request = ResourceRequest.of(spec, attempt.fence, attempt.run_id, turn, None, attempt.number + 1)
        nodes = other_nodes(
            request, current_nodes, all_nodes, queue_placement.queue(session, now), now, may_grow=may_grow
        )
        if nodes is None:
            return None
        why = _words(nodes, current_nodes, all_nodes)
    with store.write() as session:
        if (elastic := _elastic_attempt(session, checkpoint_id)) is None:
            return None
        attempt = elastic[0]
        attempt.resize_requested_at, attempt.resize_message = now, f"at checkpoint {checkpoint} {why}"
        with by_policy(session, attempt.run_id):
            add_history(session, attempt.run_id, attempt.number, now, f"ends {attempt.resize_message}")
        return attempt.run_id


def _can_go_on(session: Session, run_id: str) -> bool:
    """Whether it is clear which checkpoint the run would continue from."""
    try:
        find_checkpoint(session, run_id, None)
    except UnclearCheckpoint:
        return False
    return True


def other_nodes(
    request: ResourceRequest,
    current_nodes: Collection[str],
    all_nodes: Sequence[NodeState],
    queue: Sequence[ResourceRequest],
    now: float,
    *,
    may_grow: bool,
) -> list[str] | None:
    """The ids of the nodes an attempt would get if it ended now, where a restart is worth it; else None. Pure.

    These are more nodes than it has, unless a waiting run of equal or higher priority needs them, or the available
    ones when a node of its own drains. While one of its nodes is silent nothing is decided: it could not be ended."""
    own = [node for node in all_nodes if node.node_id in current_nodes]
    if any(node.contact != "alive" for node in own):
        return None
    is_leaving = any(node.draining for node in own)
    extra = _extra(request, current_nodes, all_nodes, queue, now) if may_grow else set()
    if not (is_leaving or extra):
        return None
    without_run = [_without(node, request.run_id) for node in all_nodes]
    placed = place([*queue, request], without_run, now).placed.get(request.fence, [])
    nodes = [placement.node_id for placement in placed]
    if is_leaving:
        return nodes or None
    return nodes if len(nodes) > len(current_nodes) and extra.issuperset(set(nodes) - set(current_nodes)) else None


def _extra(
    request: ResourceRequest,
    current_nodes: Collection[str],
    all_nodes: Sequence[NodeState],
    queue: Sequence[ResourceRequest],
    now: float,
) -> set[str]:
    """Ids of more nodes that are free and not needed by a waiting run: the request is placed last of its priority.
    Empty while another run could start, which does so first."""
    last = replace(request, fewest_nodes=1, created_at=math.inf)
    placed = place([*queue, last], all_nodes, now).placed
    if set(placed) != {last.fence}:
        return set()
    return {placement.node_id for placement in placed[last.fence]} - set(current_nodes)


def _without(node: NodeState, run_id: str) -> NodeState:
    """The state of the node after the run has released its devices."""
    own = [allocation for allocation in node.allocations if allocation.run_id == run_id]
    devices = tuple(device for allocation in own for device in allocation.devices)
    others = tuple(allocation for allocation in node.allocations if allocation.run_id != run_id)
    return replace(node, free=(*devices, *node.free), allocations=others) if own else node


def _words(nodes: Sequence[str], current_nodes: Collection[str], all_nodes: Sequence[NodeState]) -> str:
    """to continue on 3 nodes: gpu-3 is free; to continue on 2 nodes: gpu-1 drains"""
    new = sorted(node.name for node in all_nodes if node.node_id in nodes and node.node_id not in current_nodes)
    left = sorted(node.name for node in all_nodes if node.node_id in current_nodes and node.draining)
    clauses = [f"{as_list(left, MOST_NAMED)} {agree(len(left), 'drains', 'drain')}"] if left else []
    clauses += [f"{as_list(new, MOST_NAMED)} {agree(len(new), 'is', 'are')} free"] if new else []
    return f"to continue on {plural(len(nodes), 'node')}: {', '.join(clauses)}"


def _elastic_attempt(session: Session, checkpoint_id: int) -> tuple[Attempt, RunSpec, str] | None:
    """The attempt that wrote a checkpoint, its run's spec and the checkpoint's path; None if it must not end now."""
    query = (
        select(Attempt, Run.spec, Checkpoint.path)
        .join(Run, Run.id == Attempt.run_id)
        .join(Checkpoint, Checkpoint.fence == Attempt.fence)
        .where(Checkpoint.id == checkpoint_id, Checkpoint.complete, Attempt.state == State.RUNNING)
        .where(Checkpoint.merged_from.is_(None))
        .where(Attempt.resize_requested_at.is_(None), Attempt.stop_requested_at.is_(None))
        .where(Attempt.end_requested_at.is_(None), Run.spec["elastic"].as_boolean())
    )
    row = session.execute(query).first()
    if row is None:
        return None
    spec = RunSpec.model_validate(row[1])
    return (row[0], spec, row[2]) if spec.pool == "nodes" else None


def _nodes(session: Session, fence: int) -> dict[str, bool]:
    """The ids of an attempt's nodes, and whether each drains."""
    query = select(Node.id, Node.drain_requested_at).join(Task, Task.node_id == Node.id)
    return {node_id: at is not None for node_id, at in session.execute(query.where(Task.fence == fence))}


def _pause_s(session: Session, attempt: Attempt, grows_after_s: float) -> float:
    """Seconds an attempt trains at least before it ends for more nodes; 0 allows any checkpoint."""
    return max(grows_after_s, GROWS_AFTER_STARTS * _startup_s(session, attempt)) if grows_after_s else 0.0


def _startup_s(session: Session, attempt: Attempt) -> float:
    """Seconds from its placement to its first point, or to its running ranks where nothing is logged yet."""
    is_of_script = (Series.fence == attempt.fence, Series.source != "hardware")
    first_point = session.scalar(select(func.min(Series.first_wall)).where(*is_of_script))
    placed_at = attempt.placed_at or attempt.created_at
    return max(attempt.started_at or placed_at, first_point or placed_at) - placed_at
