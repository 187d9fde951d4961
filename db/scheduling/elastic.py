"""Elastic runs: at a checkpoint an attempt ends, for the next to have nodes that came or to leave one that drains."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Attempt, Checkpoint, Node, Run, Series, Task
from db.records.history import add_history
from db.scheduling import queue_placement
from db.scheduling.completion_estimate import expected_ends
from db.scheduling.node_state import hosts
from domain.liveness import ALIVE_WITHIN_S, LOST_AFTER_S
from domain.messages import State
from domain.scheduling.eligibility import want_of
from domain.scheduling.models import NodeState, ResourceRequest
from domain.scheduling.placement import place
from domain.spec import RunSpec
from domain.text.lists import counted, listed

GROWS_AFTER_S = 60.0
GROWS_AFTER_STARTS = 10
"""An attempt that took long to start trains so many times as long before it ends for more nodes: a start costs a tenth
of the time at most, whatever comes and goes."""


def resize_at_checkpoint(
    store: Store,
    checkpoint_id: int,
    now: float,
    grows_after_s: float = GROWS_AFTER_S,
    lost_after_s: float = LOST_AFTER_S,
) -> str | None:
    """Decide at a checkpoint that is complete whether an elastic run goes on with other nodes: the wish that its
    attempt ends. Returns the run's id when it does.

    Decided on a look that holds up nobody who writes, and written if the attempt still runs as it did."""
    with store.read() as session:
        found = _elastic_attempt(session, checkpoint_id)
        if found is None:
            return None
        attempt, spec, checkpoint = found
        here = _nodes(session, attempt.fence)
        has_waited = now - (attempt.started_at or now) >= _pause_s(session, attempt, grows_after_s)
        may_grow = len(here) < spec.nodes and has_waited
        if not (may_grow or any(here.values())):
            return None
        known = hosts(session, now, expected_ends(session, now), ALIVE_WITHIN_S, lost_after_s)
        turn = attempt.turn_since or attempt.created_at
        want = want_of(spec, attempt.fence, attempt.run_id, turn, None, attempt.number + 1)
        nodes = other_nodes(want, here, known, queue_placement.queue(session, now), now, may_grow=may_grow)
        if nodes is None:
            return None
        why = _words(nodes, here, known)
    with store.write() as session:
        if (found := _elastic_attempt(session, checkpoint_id)) is None:
            return None
        attempt = found[0]
        attempt.resize_requested_at, attempt.resize_message = now, f"at checkpoint {checkpoint} {why}"
        add_history(session, attempt.run_id, attempt.number, now, f"ends {attempt.resize_message}")
        return attempt.run_id


def other_nodes(
    want: ResourceRequest,
    here: Collection[str],
    known: Sequence[NodeState],
    queue: Sequence[ResourceRequest],
    now: float,
    *,
    may_grow: bool,
) -> list[str] | None:
    """Pure: the ids of the nodes an attempt would get if it ended now, where that is worth it; else None.

    More nodes than it has, unless a run that waits with its priority or a higher one needs them; or as many as there
    are when one of its own drains. While one of its own is silent nothing is decided: it could not be ended."""
    own = [host for host in known if host.node_id in here]
    if any(host.contact != "alive" for host in own):
        return None
    is_leaving = any(host.draining for host in own)
    extra = _extra(want, here, known, queue, now) if may_grow else set()
    if not (is_leaving or extra):
        return None
    given_back = [_without(host, want.run_id) for host in known]
    placed = place([*queue, want], given_back, now).placed.get(want.fence, [])
    nodes = [placement.node_id for placement in placed]
    if is_leaving:
        return nodes or None
    return nodes if len(nodes) > len(here) and extra.issuperset(set(nodes) - set(here)) else None


def _extra(
    want: ResourceRequest,
    here: Collection[str],
    known: Sequence[NodeState],
    queue: Sequence[ResourceRequest],
    now: float,
) -> set[str]:
    """Nodes beside its own that are free and nobody who waits needs: asked as the last of its priority. While
    somebody else could start, who does so next, there are none."""
    last = replace(want, fewest_nodes=1, created_at=math.inf)
    placed = place([*queue, last], known, now).placed
    if set(placed) != {last.fence}:
        return set()
    return {placement.node_id for placement in placed[last.fence]} - set(here)


def _without(host: NodeState, run_id: str) -> NodeState:
    """As it will be when the run has given its devices back."""
    mine = [hold for hold in host.holds if hold.run_id == run_id]
    devices = tuple(device for hold in mine for device in hold.devices)
    rest = tuple(hold for hold in host.holds if hold.run_id != run_id)
    return replace(host, free=(*devices, *host.free), holds=rest) if mine else host


def _words(nodes: Sequence[str], here: Collection[str], known: Sequence[NodeState]) -> str:
    """to go on with 3 nodes: gpu-3 is free; to go on with 2 nodes: gpu-1 drains"""
    new = sorted(host.name for host in known if host.node_id in nodes and host.node_id not in here)
    left = sorted(host.name for host in known if host.node_id in here and host.draining)
    said = [f"{listed(left)} {'drains' if len(left) == 1 else 'drain'}"] if left else []
    said += [f"{listed(new)} {'is' if len(new) == 1 else 'are'} free"] if new else []
    return f"to go on with {counted(len(nodes), 'node')}: {', '.join(said)}"


def _elastic_attempt(session: Session, checkpoint_id: int) -> tuple[Attempt, RunSpec, str] | None:
    """The attempt that wrote a checkpoint, its run's spec and the checkpoint's name; None if nothing may end it now."""
    query = (
        select(Attempt, Run.spec, Checkpoint.path)
        .join(Run, Run.id == Attempt.run_id)
        .join(Checkpoint, Checkpoint.fence == Attempt.fence)
        .where(Checkpoint.id == checkpoint_id, Checkpoint.complete, Attempt.state == State.RUNNING)
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
    """For how long it trains at least before it ends for more nodes; 0: it may at any checkpoint."""
    return max(grows_after_s, GROWS_AFTER_STARTS * _startup_s(session, attempt)) if grows_after_s else 0.0


def _startup_s(session: Session, attempt: Attempt) -> float:
    """From its devices to its first point, or to its ranks where nothing is logged yet."""
    first = session.scalar(select(func.min(Series.first_wall)).where(Series.fence == attempt.fence))
    began = attempt.placed_at or attempt.created_at
    return max(attempt.started_at or began, first or began) - began
