"""Place the queue: read the waiting attempts and the nodes, ask the pure scheduler, store its decision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from db.attempts.new_attempt import changes_before
from db.budgets import charges
from db.engine import Store
from db.health.incidents import avoided
from db.lookups import add_history, has_devices
from db.models import Attempt, Node, Run, Task
from db.people.visibility import public_name
from db.scheduling.expected_ends import expected_durations, expected_ends
from db.scheduling.node_state import node_states
from db.slurm import slurm_jobs
from domain.liveness import LOST_AFTER_S, SILENT_AFTER_S
from domain.messages import State
from domain.preflight import names as named
from domain.scheduling import resizing
from domain.scheduling.models import Decision, Placement, ResourceRequest, Waits
from domain.scheduling.placement import place
from domain.spec import RunSpec

MOST_PARSED = 4096
"""Waiting attempts whose resource requests stay in memory, about 1 KB each."""
_QUEUED = select(func.count()).select_from(Attempt).where(Attempt.state == State.QUEUED)
NEWS_AFTER_S = 60.0
"""An expected start that moved by less is not stored on its own."""


def place_queue(
    store: Store, now: float, silent_after_s: float = SILENT_AFTER_S, lost_after_s: float = LOST_AFTER_S
) -> list[str]:
    """Give free devices to queued attempts; return the ids of the runs that changed.

    The decision is made in a read transaction, which blocks no writer; the parts of it that still apply are stored."""
    with store.read() as session:
        waiting = queue(session, now)
        if not waiting:
            return []
        nodes = node_states(session, now, expected_ends(session, now), silent_after_s, lost_after_s)
        decision = place(waiting, nodes, now)
        for fence, waits in slurm_jobs.waits(session, waiting, now, silent_after_s).items():
            if fence not in decision.placed:
                decision.waiting[fence] = waits
        news = _news(session, decision)
    if not decision.placed and not news:
        return []
    with store.write() as session:
        attempts = select(Attempt).join(Run, Run.id == Attempt.run_id).where(Run.deleted_at.is_(None))
        decided = attempts.where(Attempt.fence.in_([*decision.placed, *news]))
        still = [attempt for attempt in session.scalars(decided) if attempt.state == State.QUEUED]
        return [attempt.run_id for attempt in still if _apply(session, attempt, decision, now)]


def queue_length(store: Store) -> int:
    """The number of queued attempts."""
    with store.read() as session:
        return session.scalar(_QUEUED) or 0


def queue(session: Session, now: float) -> list[ResourceRequest]:
    """The resource requests of all queued attempts that may start now."""
    since = func.coalesce(Attempt.turn_since, Attempt.created_at)
    query = (
        select(Attempt.fence, Attempt.number, Attempt.run_id, since, cast(Run.spec, Text), public_name())
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state == State.QUEUED, Run.deleted_at.is_(None), Attempt.awaits_checkpoints_of.is_(None))
        .where(func.coalesce(Attempt.not_before, now) <= now)
        .order_by(Attempt.fence)
    )
    rows = session.execute(query).all()
    durations = expected_durations(session, [fence for fence, number, *_ in rows if number > 1])
    avoid = avoided(session, [(run_id, number) for _, number, run_id, *_ in rows if number > 1], now)
    requests = [_request(*row) for row in rows]
    return [
        replace(
            request,
            duration_s=durations.get(request.fence, request.duration_s),
            avoid=avoid.get(request.run_id, request.avoid),
        )
        if request.fence in durations or request.run_id in avoid
        else request
        for request in requests
    ]


@lru_cache(maxsize=MOST_PARSED)
def _request(fence: int, number: int, run_id: str, since: float, spec: str, run_name: str) -> ResourceRequest:
    """Parsed once, not in every turn: a queue has a thousand specs that do not change."""
    parsed = RunSpec.model_validate(json.loads(spec))
    return ResourceRequest.of(parsed, fence, run_id, since, attempt=number, run_name=run_name)


def _news(session: Session, decision: Decision) -> list[int]:
    """The fences of waiting attempts whose reason or expected start has changed."""
    stored = select(Attempt.fence, Attempt.waiting_for, Attempt.expected_start_at)
    stored = stored.where(Attempt.state == State.QUEUED)
    return [
        fence
        for fence, reason, starts_at in session.execute(stored)
        if (waits := decision.waiting.get(fence)) and _differs(waits, reason, starts_at)
    ]


def _differs(waits: Waits, reason: str | None, starts_at: float | None) -> bool:
    if waits.reason != reason or (waits.starts_at is None) != (starts_at is None):
        return True
    return abs((waits.starts_at or 0.0) - (starts_at or 0.0)) >= NEWS_AFTER_S


def _apply(session: Session, attempt: Attempt, decision: Decision, now: float) -> bool:
    """Store the decision about an attempt; False when its devices have been taken."""
    if (waits := decision.waiting.get(attempt.fence)) is not None:
        attempt.waiting_for, attempt.expected_start_at = waits.reason, waits.starts_at
        return True
    placements = decision.placed[attempt.fence]
    if not _are_free(session, placements):
        return False
    _start(session, attempt, placements, now)
    return True


def _are_free(session: Session, placements: Sequence[Placement]) -> bool:
    placed = {placement.node_id: placement.devices for placement in placements}
    occupied = select(Task.node_id, Task.devices).where(Task.node_id.in_(placed), has_devices())
    return all(set(devices).isdisjoint(placed[node_id]) for node_id, devices in session.execute(occupied))


def _start(session: Session, attempt: Attempt, placements: Sequence[Placement], now: float) -> None:
    attempt.state, attempt.placed_at = State.STARTING, now
    attempt.waiting_for = attempt.expected_start_at = None
    names, nodes = [], []
    for node_rank, placement in enumerate(placements):
        node = session.get_one(Node, placement.node_id)
        kinds = {device["id"]: device["kind"] for device in node.devices}
        session.add(
            Task(
                fence=attempt.fence,
                node_rank=node_rank,
                node_id=node.id,
                device_kind=kinds[placement.devices[0]],
                devices=list(placement.devices),
                state=State.STARTING,
            )
        )
        names.append(f"{node.name} ({', '.join(placement.devices)})")
        nodes.append(node.name)
    charges.placed(session, attempt.fence, sum(len(placement.devices) for placement in placements))
    if len(nodes) > 1:
        attempt.waiting_for = f"waits in preflight for {named(nodes)}"
    add_history(session, attempt.run_id, attempt.number, now, f"placed on {'; '.join(names)}")
    _resize(session, attempt, len(nodes), now)


def _resize(session: Session, attempt: Attempt, nodes: int, now: float) -> None:
    """Store the fields of the spec that differ on this number of nodes, with a history line when they are new."""
    spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
    rolled_back, before = changes_before(session, attempt.run_id, attempt.number), attempt.changes
    spec = resizing.effective(spec, rolled_back)
    attempt.changes = rolled_back | resizing.changes(spec, nodes) or None
    if attempt.changes != before:
        add_history(session, attempt.run_id, attempt.number, now, resizing.sentence(spec, nodes))
