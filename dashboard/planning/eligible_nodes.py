"""The nodes that are eligible for a plan, by the scheduler's own rules."""

from __future__ import annotations

from collections.abc import Sequence

from domain.scheduling import eligibility
from domain.scheduling.models import Allocation, NodeState
from domain.scheduling.pools import Pools
from domain.spec import RunSpec
from domain.views import NodeView


def with_devices_counted(spec: RunSpec, nodes: Sequence[NodeView]) -> RunSpec:
    """Return the spec with `gpus_per_node` filled in as `submit` would do it now."""
    return spec.model_copy(update={"gpus_per_node": eligibility.devices_per_node(spec, _node_states(nodes))})


def nodes_for(spec: RunSpec, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Return the nodes with the requested names and labels and the kind of device that the run would get."""
    pools, by_id = Pools(_node_states(nodes)), {node.id: node for node in nodes}
    members = pools.of(eligibility.resource_request(spec)).members
    return [by_id[pools.nodes[index].node_id] for index in members]


def _node_states(nodes: Sequence[NodeView]) -> list[NodeState]:
    return [
        NodeState(
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
        for node in nodes
    ]
