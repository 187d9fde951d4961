"""Guest nodes: made with the place of a process that watches, and removed when nothing more comes from it."""

from __future__ import annotations

import secrets
from dataclasses import replace

from sqlalchemy import Select, and_, not_, or_, select, update
from sqlalchemy.orm import Session

from db.attempts.liveness import last_heartbeat
from db.engine import Store
from db.lookups import is_ours, task_is_live, task_is_wanted
from db.models import Attempt, Node, Run, Task, WatchedRun, WatchedTask
from db.nodes.node_reports import RegisteredNode, describe
from db.people.visibility import visible_runs
from domain.liveness import SILENT_AFTER_S, contact_state
from domain.watching.guests import pool_of
from domain.watching.messages import WatchRequest
from domain.watching.views import GuestView

KEPT_S = 86_400.0
"""A guest that was lost for so long is shown no more; it gets its place back when it returns."""


def welcome(
    session: Session, fence: int, request: WatchRequest, now: float, node: Node | None = None
) -> RegisteredNode:
    """Make the guest of a process in an attempt, or renew the one that it has; its earlier token ends."""
    pool = pool_of(fence)
    name = node.name if node else _free_name(session, pool, request.command.host)
    node = node or Node(id=secrets.token_hex(5), first_seen=now)
    node.removed_at = None
    return describe(session, node, request.facts.model_copy(update={"name": name, "pool": pool, "held": []}), now)


def _free_name(session: Session, pool: str, host: str) -> str:
    """The host's name; host-2, host-3 … for further processes of the attempt there."""
    taken = set(session.scalars(select(Node.name).where(Node.pool == pool)))
    names = [host, *(f"{host}-{number}" for number in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)


_OF_NODE = select(Task.fence).join(Attempt, Attempt.fence == Task.fence).where(Task.node_id == Node.id)
_HAS_TO_DO = _OF_NODE.where(task_is_wanted()).exists()
_IS_LIVE = _OF_NODE.where(task_is_live()).exists()


def has_to_do(store: Store, node_id: str) -> bool:
    """Whether a guest's task runs, or something of it is still to come; a guest without may leave."""
    with store.read() as session:
        return session.scalar(select(Node.id).where(Node.id == node_id, _HAS_TO_DO)) is not None


def remove_gone(store: Store, now: float) -> list[str]:
    """Remove the guests that have left, and those that were lost for long; return their ids."""
    with store.read() as session:
        if session.scalars(_gone(now).limit(1)).first() is None:
            return []
    with store.write() as session:
        gone = list(session.scalars(_gone(now)))
        session.execute(update(Node).where(Node.id.in_(gone)).values(removed_at=now))
        return gone


def _gone(now: float) -> Select[str]:
    has_left = and_(Node.last_seen <= now - SILENT_AFTER_S, not_(_HAS_TO_DO))
    is_given_up = and_(Node.last_seen <= now - KEPT_S, not_(_IS_LIVE))
    return select(Node.id).where(not_(is_ours()), Node.removed_at.is_(None), or_(has_left, is_given_up))


def listed(store: Store, now: float, lost_after_s: float) -> list[GuestView]:
    """The guests of the runs that the actor may see: a view for each host and run, the newest run first."""
    query = (
        select(Node, Task.devices, Attempt, Run.name, WatchedTask.host, WatchedRun)
        .join(Task, Task.node_id == Node.id)
        .join(WatchedTask, (WatchedTask.fence == Task.fence) & (WatchedTask.node_rank == Task.node_rank))
        .join(Attempt, Attempt.fence == Task.fence)
        .join(Run, Run.id == Attempt.run_id)
        .join(WatchedRun, WatchedRun.run_id == Run.id)
        .where(not_(is_ours()), Node.removed_at.is_(None), visible_runs())
        .order_by(Attempt.fence.desc(), Task.node_rank)
    )
    by_host: dict[tuple[int, str], GuestView] = {}
    with store.read() as session:
        for node, devices, attempt, run, host, watched in session.execute(query):
            silent_s = max(0.0, now - last_heartbeat(session, node.id, node.last_seen))
            key, earlier = (attempt.fence, host), by_host.get((attempt.fence, host))
            names = [device["name"] for device in node.devices if device["id"] in devices]
            by_host[key] = GuestView(
                host=host,
                run_id=attempt.run_id,
                run=run,
                state=attempt.state,
                contact=contact_state(silent_s, lost_after_s),
                silent_s=silent_s,
                processes=1,
                devices=names,
                started=f"{watched.account} ({watched.scheduler})" if watched.scheduler else watched.account,
            )
            if earlier is not None:
                by_host[key] = _together(earlier, by_host[key])
    return list(by_host.values())


def _together(one: GuestView, other: GuestView) -> GuestView:
    """Put two processes on one host together; the contact is that of the one heard last."""
    heard = min(one, other, key=lambda guest: guest.silent_s)
    return replace(heard, processes=one.processes + other.processes, devices=[*one.devices, *other.devices])
