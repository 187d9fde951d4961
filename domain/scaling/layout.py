"""How a number of devices is divided over nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Layout:
    """Devices on nodes that have equally many each."""

    devices: int
    nodes: int

    @property
    def devices_per_node(self) -> int:
        """Devices of each node."""
        return self.devices // self.nodes


def layout(devices: int, capacities: Sequence[int]) -> Layout | None:
    """Divide devices over the fewest nodes of these capacities; None where they do not hold them."""
    for nodes in range(1, len(capacities) + 1):
        if devices % nodes == 0 and sum(size >= devices // nodes for size in capacities) >= nodes:
            return Layout(devices, nodes)
    return None
