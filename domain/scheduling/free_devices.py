"""The devices that are free now, and the reservations of waiting runs on them. Pure."""

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
        None if there are fewer than `request.fewest`."""
        ends_at = self._end_of(request)
        chosen: list[int] = []
        for index in self.with_free(request.devices_per_node, pool):
            reservation = self._reservations.get(index)
            if (
                reservation is None
                or ends_at <= reservation.until
                or request.devices_per_node <= reservation.spare
            ):
                chosen.append(index)
                if len(chosen) == request.nodes:
                    break
        return sorted(chosen) if len(chosen) >= request.fewest else None

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
        return next(
            (self._reservations[index].run_id for index in nodes if index in self._reservations), None
        )

    def _allocate(self, request: ResourceRequest, index: int) -> Placement:
        free, count = self._free[index], request.devices_per_node
        del self._order[bisect_left(self._order, (len(free), index))]
        devices, self._free[index] = free[:count], free[count:]
        insort(self._order, (len(free) - count, index))
        reservation = self._reservations.get(index)
        if reservation is not None and self._end_of(request) > reservation.until:
            reservation.spare -= count
        return Placement(self._nodes[index].node_id, tuple(devices))

    def _end_of(self, request: ResourceRequest) -> float:
        return math.inf if request.duration_s is None else self._now + request.duration_s
