"""When devices come free, as far as the runs that have them say when they end; pure."""

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
"""When a node has enough devices, how many of them no one can foretell, and which node it is."""


@dataclass(frozen=True)
class Start:
    """The earliest start of a run that has to wait, and what it then gets."""

    at: float
    """Infinite when it hangs on a run that does not say when it ends."""
    not_before: float
    """What it waits for that can be foretold is over by then."""
    hosts: list[int]
    blocker: str
    """The run whose end comes last of those it waits for."""
    blocker_host: int


class Forecast:
    """For each node when its devices come free, and after whom; only ever later, as runs are added."""

    def __init__(self, hosts: Sequence[NodeState], now: float) -> None:
        self._now = now
        self._rows = [_row(host, now) for host in hosts]
        self._turns: dict[tuple[Pool, int], list[Turn]] = {}

    def earliest(self, want: ResourceRequest, pool: Pool) -> Start | None:
        """When and where a run can start on the fewest nodes it needs; None when it never can on the usable
        nodes of its pool."""
        turns = self._soonest(want, pool)
        if len(turns) < want.fewest:
            return None
        ends = [(*self._rows[index][want.devices_per_node - 1], index) for _, _, index in turns]
        at, blocker, blocker_host = max(ends)
        not_before = max((end[0] for end in ends if end[0] < math.inf), default=self._now)
        return Start(at, not_before, [index for _, _, index in turns], blocker, blocker_host)

    def to_spare(self, index: int, devices: int, at: float) -> int:
        """How many devices of a node will be free by then beyond those that are needed."""
        return max(0, bisect_right(self._rows[index], at, key=lambda entry: entry[0]) - devices)

    def occupy(self, want: ResourceRequest, hosts: Sequence[int], at: float) -> None:
        """The run will have these nodes' first devices from then on, for as long as it takes."""
        ends_at = math.inf if want.duration_s is None else at + want.duration_s
        for index in hosts:
            rest = self._rows[index][want.devices_per_node :]
            self._rows[index] = sorted(rest + [(ends_at, want.run_id)] * want.devices_per_node)

    def _soonest(self, want: ResourceRequest, pool: Pool) -> list[Turn]:
        """The nodes that have enough devices first. Turns are put right only when they come up: since
        devices are only ever taken, no node can come up too late."""
        heap, fewest = self._heap(pool, want.devices_per_node), want.fewest
        found: list[Turn] = []
        while heap and len(found) < fewest:
            turn = heapq.heappop(heap)
            current = self._turn(turn[2], want.devices_per_node)
            if current == turn:
                found.append(turn)
            else:
                heapq.heappush(heap, current)
        for turn in found:
            heapq.heappush(heap, turn)
        return found

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


def _row(host: NodeState, now: float) -> list[tuple[float, str]]:
    row = [(now, NOBODY)] * len(host.free)
    for hold in host.holds:
        # A run that takes longer than foretold may end at any moment.
        ends_at = math.inf if hold.ends_at is None else max(now, hold.ends_at)
        row += [(ends_at, hold.run_id)] * len(hold.devices)
    return sorted(row)
