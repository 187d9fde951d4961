"""Forecast when devices become free, from the expected ends of the runs that have them. Pure."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from domain.scheduling.models import NodeState, ResourceRequest
from domain.scheduling.pools import Pool

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
