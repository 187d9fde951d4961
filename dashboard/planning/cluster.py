"""The registered nodes as planning sees them: their states for the scheduler's rules, their machines and devices."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from db.slurm.slurm_jobs import GATEWAY
from domain.scheduling.models import Allocation, Kind, NodeState, ResourceRequest
from domain.scheduling.pools import Pools
from domain.spec import RunSpec
from domain.views import NodeView


@dataclass(frozen=True)
class ClusterNodes:
    """All registered nodes at one moment."""

    nodes: Sequence[NodeView] = ()

    @cached_property
    def states(self) -> list[NodeState]:
        """The nodes as the scheduler sees them."""
        return [_state(node) for node in self.nodes]

    def eligible(self, spec: RunSpec) -> list[NodeState]:
        """Return the nodes with the requested names, labels and kind of device."""
        pools = Pools(self.states)
        return [pools.nodes[index] for index in pools.of(ResourceRequest.of(spec)).members]

    def device_kind(self, spec: RunSpec) -> Kind:
        """Return the kind of device that the run would get."""
        return next((node.kind for node in self.eligible(spec)), "cpu")

    @property
    def has_gpus(self) -> bool:
        """Whether a connected node has a GPU; also true where no node is connected."""
        online = [node for node in self.nodes if node.state == "alive"]
        return {device.kind for node in online for device in node.devices} != {"cpu"}

    @property
    def gateways(self) -> list[dict[str, Any]]:
        """The facts that the Slurm gateways report: their paths and partitions."""
        return [node.info.get("slurm") or {} for node in self.nodes if node.pool == GATEWAY]

    @property
    def shares_disk(self) -> bool:
        """Whether a worker may run on this machine and see the same paths."""
        return not self.nodes or any(node.hostname == socket.gethostname() for node in self.nodes)


def _state(node: NodeView) -> NodeState:
    return NodeState(
        node_id=node.id,
        name=node.name,
        free=tuple(d.id for d in node.devices if d.run_id is None and not d.foreign),
        allocations=tuple(Allocation(d.run_id, (d.id,)) for d in node.devices if d.run_id is not None),
        foreign=sum(d.foreign for d in node.devices),
        kind="cuda" if node.devices and node.devices[0].kind == "cuda" else "cpu",
        labels=node.labels,
        contact=node.state,
        draining=node.draining,
        pool=node.pool,
        protocol=node.protocol,
    )
