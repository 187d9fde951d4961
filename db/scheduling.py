"""Placing the queue: reads who waits and what is free, asks the pure scheduler, writes what it decided."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.agreement import waiting_for
from db.engine import Store
from db.models import Attempt, Node, Part, Run
from db.placement import Offer, Placement, Waiting, place
from db.requests import note
from db.spec import RunSpec
from db.states import TERMINAL_STATES, State


def place_queue(store: Store, now: float, alive_within_s: float) -> list[str]:
    """Give free devices to queued attempts; returns the ids of the runs that changed."""
    with store.read() as session:
        if session.scalar(select(Attempt.fence).where(Attempt.state == State.QUEUED).limit(1)) is None:
            return []
    with store.write() as session:
        attempts = _queued(session)
        offers = _offers(session, now - alive_within_s)
        decision = place([_waiting(session, attempt) for attempt in attempts], offers)
        changed = []
        for attempt in attempts:
            if attempt.fence in decision.placed:
                changed.append(_start(session, attempt, decision.placed[attempt.fence], now))
            elif _wait(attempt, decision.waiting[attempt.fence]):
                changed.append(attempt.run_id)
        return changed


def _queued(session: Session) -> Sequence[Attempt]:
    queue = select(Attempt).where(Attempt.state == State.QUEUED).order_by(Attempt.fence)
    return list(session.scalars(queue))


def _waiting(session: Session, attempt: Attempt) -> Waiting:
    spec = RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)
    return Waiting(attempt.fence, attempt.run_id, spec.nodes, spec.gpus_per_node or 1)


def _offers(session: Session, seen_since: float) -> list[Offer]:
    used: dict[str, set[str]] = {}
    for part in session.scalars(select(Part).where(Part.state.not_in(TERMINAL_STATES))):
        used.setdefault(part.node_id, set()).update(part.devices)
    offers = []
    for node in session.scalars(select(Node).where(Node.last_seen >= seen_since).order_by(Node.name)):
        ids = [device["id"] for device in node.devices]
        free = tuple(i for i in ids if i not in used.get(node.id, ()))
        offers.append(Offer(node.id, node.name, len(ids), free))
    return offers


def _wait(attempt: Attempt, why: str) -> bool:
    """Say why it waits; true when that is news."""
    is_news = attempt.waiting_for != why
    attempt.waiting_for = why
    return is_news


def _start(session: Session, attempt: Attempt, placements: Sequence[Placement], now: float) -> str:
    attempt.state, attempt.placed_at, attempt.waiting_for = State.STARTING, now, None
    names, nodes = [], []
    for node_rank, placement in enumerate(placements):
        node = session.get_one(Node, placement.node_id)
        kinds = {device["id"]: device["kind"] for device in node.devices}
        session.add(
            Part(
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
    if len(nodes) > 1:
        attempt.waiting_for = waiting_for(nodes)
    note(session, attempt.run_id, attempt.number, now, f"placed on {'; '.join(names)}")
    return attempt.run_id
