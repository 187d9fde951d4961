"""The scheduler as a pure function: from the queue and the nodes to placements, or the reason to wait."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domain.scheduling.fit import Blocker, PlacementContext, reason
from domain.scheduling.models import Decision, NodeState, Placement, Pool, Pools, ResourceRequest, Waits


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


# The devices that are free now, and the reservations of waiting runs on them. Pure.


@dataclass
class Reservation:
    """A waiting run's claim to a node, and the limits for others that use its free devices meanwhile."""

    run_id: str
    until: float
    """Runs that end by this time may use all of them."""
    spare: int
    """Devices that other runs may use: those the waiting run will not need."""


class FreeDevices:
    """The free devices of all usable nodes, those with the fewest first."""

    def __init__(self, nodes: Sequence[NodeState], now: float) -> None:
        self._nodes = nodes
        self._now = now
        self._free = {index: list(node.free) for index, node in enumerate(nodes) if node.is_usable}
        self._order = sorted((len(free), index) for index, free in self._free.items())
        self._reservations: dict[int, Reservation] = {}

    def choose(self, request: ResourceRequest, pool: Pool) -> list[int] | None:
        """The fullest nodes with enough free devices, so that large free nodes stay whole; at most `request.nodes`,
        None if there are fewer than `request.fewest`. Devices that it better avoids are chosen where others do not
        suffice."""
        if request.avoid:
            chosen = self._choose(request, self._without_avoided(request, pool))
            if len(chosen) == request.nodes:
                return sorted(chosen)
        chosen = self._choose(request, self.with_free(request.devices_per_node, pool))
        return sorted(chosen) if len(chosen) >= request.fewest else None

    def _without_avoided(self, request: ResourceRequest, pool: Pool) -> list[int]:
        able = self.with_free(request.devices_per_node, pool)
        return [index for index in able if self._better(request, index) >= request.devices_per_node]

    def _better(self, request: ResourceRequest, index: int) -> int:
        """The number of free devices of a node that the request need not avoid."""
        return sum(not self._is_avoided(request, index, device) for device in self._free[index])

    def _is_avoided(self, request: ResourceRequest, index: int, device: str) -> bool:
        node_id = self._nodes[index].node_id
        return (node_id, device) in request.avoid or (node_id, "") in request.avoid

    def _choose(self, request: ResourceRequest, able: Sequence[int]) -> list[int]:
        ends_at = self._end_of(request)
        chosen: list[int] = []
        for index in able:
            reservation = self._reservations.get(index)
            if reservation is None or ends_at <= reservation.until or request.devices_per_node <= reservation.spare:
                chosen.append(index)
                if len(chosen) == request.nodes:
                    break
        return chosen

    def allocate(self, request: ResourceRequest, chosen: Sequence[int]) -> list[Placement]:
        """Give the run its devices on these nodes."""
        return [self._allocate(request, index) for index in chosen]

    def reserve(self, request: ResourceRequest, start: Start, forecast: Forecast) -> None:
        """Reserve the nodes of a waiting run: other runs may use them only without delaying it."""
        for index in start.nodes:
            spare = forecast.to_spare(index, request.devices_per_node, start.not_before)
            self._reservations[index] = Reservation(request.run_id, start.not_before, spare)

    def with_free(self, devices: int, pool: Pool) -> list[int]:
        """Nodes of a pool with at least `devices` free devices, reserved or not, the fullest first."""
        first = bisect_left(self._order, (devices, -1))
        return [index for _, index in self._order[first:] if index in pool.usable]

    def free_in(self, pool: Pool) -> list[int]:
        """The number of free devices on each usable node of a pool."""
        return [len(self._free[index]) for index in pool.usable]

    def reserved_for(self, nodes: Sequence[int]) -> str | None:
        """The run that has a reservation on any of these nodes; None when there is none."""
        return next((self._reservations[index].run_id for index in nodes if index in self._reservations), None)

    def _allocate(self, request: ResourceRequest, index: int) -> Placement:
        free, count = self._free[index], request.devices_per_node
        del self._order[bisect_left(self._order, (len(free), index))]
        if request.avoid:  # those to avoid last
            better = [device for device in free if not self._is_avoided(request, index, device)]
            free = better + [device for device in free if device not in better]
        devices, self._free[index] = free[:count], free[count:]
        insort(self._order, (len(free) - count, index))
        reservation = self._reservations.get(index)
        if reservation is not None and self._end_of(request) > reservation.until:
            reservation.spare -= count
        return Placement(self._nodes[index].node_id, tuple(devices))

    def _end_of(self, request: ResourceRequest) -> float:
        return math.inf if request.duration_s is None else self._now + request.duration_s


# Forecast when devices become free, from the expected ends of the runs that have them. Pure.

NOBODY = ""
Turn = tuple[float, int, int]
"""(time a node has enough free devices, number of them that cannot be predicted, index of the node)."""


@dataclass(frozen=True)
class Start:
    """The earliest start of a waiting run, and the nodes it then gets."""

    at: float
    """Infinite when it depends on a run with an unknown end."""
    not_before: float
    """The latest predictable end among the runs it waits for."""
    nodes: list[int]
    blocker: str
    """The run that ends last of those it waits for."""
    blocker_node: int


class Forecast:
    """When each node's devices become free, and after which run; times only move later as runs are added."""

    def __init__(self, nodes: Sequence[NodeState], now: float) -> None:
        self._now = now
        self._rows = [_row(node, now) for node in nodes]
        self._turns: dict[tuple[Pool, int], list[Turn]] = {}

    def earliest(self, request: ResourceRequest, pool: Pool) -> Start | None:
        """The earliest start of a run on the fewest nodes it needs; None when the usable nodes of its pool never
        suffice."""
        turns = self._soonest(request, pool)
        if len(turns) < request.fewest:
            return None
        ends = [(*self._rows[index][request.devices_per_node - 1], index) for _, _, index in turns]
        at, blocker, blocker_node = max(ends)
        not_before = max((end[0] for end in ends if end[0] < math.inf), default=self._now)
        return Start(at, not_before, [index for _, _, index in turns], blocker, blocker_node)

    def to_spare(self, index: int, devices: int, at: float) -> int:
        """Devices of a node that will be free at `at`, beyond the `devices` needed."""
        return max(0, bisect_right(self._rows[index], at, key=lambda entry: entry[0]) - devices)

    def occupy(self, request: ResourceRequest, nodes: Sequence[int], at: float) -> None:
        """Assign these nodes' first free devices to the run from `at` until its expected end."""
        ends_at = math.inf if request.duration_s is None else at + request.duration_s
        for index in nodes:
            remaining = self._rows[index][request.devices_per_node :]
            self._rows[index] = sorted(remaining + [(ends_at, request.run_id)] * request.devices_per_node)

    def _soonest(self, request: ResourceRequest, pool: Pool) -> list[Turn]:
        """The nodes that have enough devices first. A turn is updated only when it reaches the top of the heap: since
        devices are only ever taken, no node can surface too late."""
        heap, fewest = self._heap(pool, request.devices_per_node), request.fewest
        soonest: list[Turn] = []
        while heap and len(soonest) < fewest:
            turn = heapq.heappop(heap)
            current = self._turn(turn[2], request.devices_per_node)
            if current == turn:
                soonest.append(turn)
            else:
                heapq.heappush(heap, current)
        for turn in soonest:
            heapq.heappush(heap, turn)
        return soonest

    def _heap(self, pool: Pool, devices: int) -> list[Turn]:
        if (pool, devices) not in self._turns:
            turns = [self._turn(i, devices) for i in pool.usable if len(self._rows[i]) >= devices]
            heapq.heapify(turns)
            self._turns[pool, devices] = turns
        return self._turns[pool, devices]

    def _turn(self, index: int, devices: int) -> Turn:
        row = self._rows[index]
        at = row[devices - 1][0]
        unknown = devices - bisect_left(row, (math.inf,)) if at == math.inf else 0
        return at, unknown, index


def _row(node: NodeState, now: float) -> list[tuple[float, str]]:
    row = [(now, NOBODY)] * len(node.free)
    for allocation in node.allocations:
        # A run that takes longer than expected may end at any moment.
        ends_at = math.inf if allocation.ends_at is None else max(now, allocation.ends_at)
        row += [(ends_at, allocation.run_id)] * len(allocation.devices)
    return sorted(row)
