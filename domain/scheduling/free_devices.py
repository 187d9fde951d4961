"""Devices that are free now, and those of them that are kept for a run that came first; pure."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from domain.scheduling.forecast import Forecast, Start
from domain.scheduling.models import NodeState, Placement, ResourceRequest
from domain.scheduling.pools import Pool


@dataclass
class Reservation:
    """A node that a waiting run will get: who may use its free devices meanwhile."""

    run_id: str
    until: float
    """Runs that end by then may use all of them."""
    spare: int
    """Others so many: those that the waiting run will not need."""


class FreeDevices:
    """The free devices of all usable nodes, the fullest node first."""

    def __init__(self, hosts: Sequence[NodeState], now: float) -> None:
        self._hosts = hosts
        self._now = now
        self._free = {index: list(host.free) for index, host in enumerate(hosts) if host.is_usable}
        self._order = sorted((len(free), index) for index, free in self._free.items())
        self._kept: dict[int, Reservation] = {}

    def choose(self, want: ResourceRequest, pool: Pool) -> list[int] | None:
        """The fullest nodes that have room, so that large free nodes stay whole: as many as it
        wants, or as there are; None if they are too few."""
        ends_at = self._end_of(want)
        chosen: list[int] = []
        for index in self.with_free(want.devices_per_node, pool):
            kept = self._kept.get(index)
            if kept is None or ends_at <= kept.until or want.devices_per_node <= kept.spare:
                chosen.append(index)
                if len(chosen) == want.nodes:
                    break
        return sorted(chosen) if len(chosen) >= want.fewest else None

    def take(self, want: ResourceRequest, chosen: Sequence[int]) -> list[Placement]:
        """Give the run its devices on these nodes."""
        return [self._take(want, index) for index in chosen]

    def keep(self, want: ResourceRequest, start: Start, forecast: Forecast) -> None:
        """Let nobody delay this run: from now on its nodes are given to others only as far as it allows."""
        for index in start.hosts:
            spare = forecast.to_spare(index, want.devices_per_node, start.not_before)
            self._kept[index] = Reservation(want.run_id, start.not_before, spare)

    def with_free(self, devices: int, pool: Pool) -> list[int]:
        """Nodes of a pool with so many free devices, kept or not, the fullest first."""
        first = bisect_left(self._order, (devices, -1))
        return [index for _, index in self._order[first:] if index in pool.usable]

    def free_in(self, pool: Pool) -> list[int]:
        """How many devices are free on each usable node of a pool."""
        return [len(self._free[index]) for index in pool.usable]

    def kept_for(self, hosts: Sequence[int]) -> str | None:
        """The run for which any of these nodes is kept."""
        return next((self._kept[index].run_id for index in hosts if index in self._kept), None)

    def _take(self, want: ResourceRequest, index: int) -> Placement:
        free, count = self._free[index], want.devices_per_node
        del self._order[bisect_left(self._order, (len(free), index))]
        taken, self._free[index] = free[:count], free[count:]
        insort(self._order, (len(free) - count, index))
        kept = self._kept.get(index)
        if kept is not None and self._end_of(want) > kept.until:
            kept.spare -= count
        return Placement(self._hosts[index].node_id, tuple(taken))

    def _end_of(self, want: ResourceRequest) -> float:
        return math.inf if want.duration_s is None else self._now + want.duration_s
