"""The scheduler as a pure function: from the queue and the nodes to placements, or the reason to wait."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from domain.scheduling.forecast import Forecast, Start
from domain.scheduling.free_devices import FreeDevices
from domain.scheduling.models import Decision, NodeState, ResourceRequest, Waits
from domain.scheduling.placement_words import Blocker, PlacementContext, reason
from domain.scheduling.pools import Pool, Pools


def place(queue: Iterable[ResourceRequest], nodes: Iterable[NodeState], now: float) -> Decision:
    """Give each run all its devices at once or none: by priority, then first come.

    A run with a minimum number of nodes gets as many as are free, up to the number it asks for; the reason to wait
    is about the minimum.

    A run overtakes a waiting one only without delaying it: it uses devices that the other will not need, or is
    expected to end before the other can start (EASY backfill). Runs with disjoint nodes do not wait for each other."""
    pools = Pools(nodes)
    free, forecast = FreeDevices(pools.nodes, now), Forecast(pools.nodes, now)
    decision, waiting, first = Decision(), [], _First()
    for request in sorted(queue, key=turn):
        pool = pools.of(request)
        if chosen := free.choose(request, pool):
            decision.placed[request.fence] = free.allocate(request, chosen)
            forecast.occupy(request, chosen, now)
            continue
        waiting.append((request, pool))
        if first.is_first_for(pool) and (start := forecast.earliest(request, pool)):
            first.add(pool)
            free.reserve(request, start, forecast)
    queued = {request.run_id: request for request, _ in waiting}
    names = _run_names(pools.nodes, [request for request, _ in waiting]) if waiting else {}
    contexts = {pool: _context(pool, pools.nodes, free) for pool in {pool for _, pool in waiting}}
    for request, pool in waiting:
        start = forecast.earliest(request, pool)
        holder = _reserved_for(request, pool, free, queued)
        blocker = _blocker(start, pools.nodes, queued, names) if start else None
        at = start.at if start is not None and start.at < math.inf else None
        decision.waiting[request.fence] = Waits(reason(request, contexts[pool], now, holder, blocker), at)
        if start is not None:
            forecast.occupy(request, start.nodes, start.at)
    return decision


def turn(request: ResourceRequest) -> tuple[int, float, int]:
    """Sort key of the queue: priority, then time of creation."""
    return -request.priority, request.created_at, request.fence


class _First:
    """The nodes with a reservation: only the first waiting run of each set of nodes gets one."""

    def __init__(self) -> None:
        self._usable: list[frozenset[int]] = []

    def is_first_for(self, pool: Pool) -> bool:
        return all(pool.usable.isdisjoint(usable) for usable in self._usable)

    def add(self, pool: Pool) -> None:
        self._usable.append(pool.usable)


def _context(pool: Pool, nodes: Sequence[NodeState], free: FreeDevices) -> PlacementContext:
    return PlacementContext(pool.kind, [nodes[index] for index in pool.members], free.free_in(pool))


def _reserved_for(
    request: ResourceRequest, pool: Pool, free: FreeDevices, queued: Mapping[str, ResourceRequest]
) -> ResourceRequest | None:
    with_room = free.with_free(request.devices_per_node, pool)
    return queued.get(free.reserved_for(with_room) or "") if len(with_room) >= request.fewest else None


def _run_names(nodes: Sequence[NodeState], waiting: Sequence[ResourceRequest]) -> dict[str, str]:
    """The names of all runs that one may wait for, by their ids."""
    running = [(one.run_id, one.run_name) for node in nodes for one in node.allocations]
    named = [*running, *((request.run_id, request.run_name) for request in waiting)]
    return {run_id: name for run_id, name in named if name}


def _blocker(
    start: Start, nodes: Sequence[NodeState], queued: Mapping[str, ResourceRequest], names: Mapping[str, str]
) -> Blocker:
    ends_at = start.at if start.at < math.inf else None
    name = names.get(start.blocker, start.blocker)
    return Blocker(name, nodes[start.blocker_node].name, ends_at, queued.get(start.blocker))
