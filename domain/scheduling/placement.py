"""The scheduler as a pure function: a queue and the nodes in, assignments or a reason in words out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from domain.scheduling.forecast import Forecast, Start
from domain.scheduling.free_devices import FreeDevices
from domain.scheduling.models import Decision, NodeState, ResourceRequest, Waits
from domain.scheduling.placement_words import Blocker, PlacementContext, reason
from domain.scheduling.pools import Pool, Pools


def place(queue: Iterable[ResourceRequest], hosts: Iterable[NodeState], now: float) -> Decision:
    """Give each run all its devices at once or none: by priority, then first come.

    One that says how few nodes it makes do with gets as many as are free for it, up to those it names; while it
    waits, it waits for the fewest.

    A run passes one that has to wait only if it does not delay it: it takes what that one will not need, or is
    expected to end before that one can start (EASY backfill). Runs whose nodes differ do not wait for each other."""
    pools = Pools(hosts)
    room, forecast = FreeDevices(pools.hosts, now), Forecast(pools.hosts, now)
    decision, waiting, first = Decision(), [], _First()
    for want in sorted(queue, key=turn):
        pool = pools.of(want)
        if chosen := room.choose(want, pool):
            decision.placed[want.fence] = room.take(want, chosen)
            forecast.occupy(want, chosen, now)
            continue
        waiting.append((want, pool))
        if first.is_first_for(pool) and (start := forecast.earliest(want, pool)):
            first.add(pool)
            room.keep(want, start, forecast)
    queued = {want.run_id: want for want, _ in waiting}
    there_is = {pool: _there_is(pool, pools.hosts, room) for pool in {pool for _, pool in waiting}}
    for want, pool in waiting:
        start = forecast.earliest(want, pool)
        there = replace(
            there_is[pool],
            kept_for=_kept_for(want, pool, room, queued),
            blocker=_blocker(start, pools.hosts, queued) if start else None,
        )
        at = start.at if start is not None and start.at < math.inf else None
        decision.waiting[want.fence] = Waits(reason(want, there, now), at)
        if start is not None:
            forecast.occupy(want, start.hosts, start.at)
    return decision


def turn(want: ResourceRequest) -> tuple[int, float, int]:
    """The order of the queue."""
    return -want.priority, want.created_at, want.fence


class _First:
    """The nodes that first-in-line runs wait for: one such run for all nodes that it might get."""

    def __init__(self) -> None:
        self._taken: list[frozenset[int]] = []

    def is_first_for(self, pool: Pool) -> bool:
        return all(pool.usable.isdisjoint(taken) for taken in self._taken)

    def add(self, pool: Pool) -> None:
        self._taken.append(pool.usable)


def _there_is(pool: Pool, hosts: Sequence[NodeState], room: FreeDevices) -> PlacementContext:
    return PlacementContext(pool.kind, [hosts[index] for index in pool.known], room.free_in(pool))


def _kept_for(
    want: ResourceRequest, pool: Pool, room: FreeDevices, queued: Mapping[str, ResourceRequest]
) -> ResourceRequest | None:
    with_room = room.with_free(want.devices_per_node, pool)
    return queued.get(room.kept_for(with_room) or "") if len(with_room) >= want.fewest else None


def _blocker(start: Start, hosts: Sequence[NodeState], queued: Mapping[str, ResourceRequest]) -> Blocker:
    ends_at = start.at if start.at < math.inf else None
    return Blocker(start.blocker, hosts[start.blocker_host].name, ends_at, queued.get(start.blocker))
