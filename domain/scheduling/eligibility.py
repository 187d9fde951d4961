"""The resources that a spec requests, and how many devices it gets by default. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from domain.scheduling.models import NodeState, ResourceRequest
from domain.scheduling.pools import Pools
from domain.spec import RunSpec


def resource_request(
    spec: RunSpec,
    fence: int = 0,
    run_id: str = "",
    created_at: float = 0.0,
    duration_s: float | None = None,
    attempt: int = 1,
) -> ResourceRequest:
    """Resource request of attempt `attempt`. Elastic runs and later attempts may start on fewer nodes."""
    is_slurm = spec.pool == "slurm"  # labels choose its gateway there, and a job has all its nodes
    return ResourceRequest(
        fence=fence,
        run_id=run_id,
        nodes=spec.nodes,
        devices_per_node=spec.gpus_per_node or 1,
        priority=spec.priority,
        created_at=created_at,
        labels={} if is_slurm else spec.labels,
        on_nodes=tuple(spec.on_nodes),
        pool=f"slurm:{fence}" if is_slurm else "",
        duration_s=duration_s,
        waits_for_nodes=spec.wait_for_nodes,
        fewest_nodes=spec.fewest_nodes if not is_slurm and (spec.elastic or attempt > 1) else None,
    )


def devices_per_node(spec: RunSpec, nodes: Sequence[NodeState]) -> int:
    """Devices per node of the spec, or its default: as many as enough nodes have free now, else in all; at least 1."""
    if spec.gpus_per_node is not None:
        return spec.gpus_per_node
    if spec.strategy == "single" or spec.pool == "slurm":
        return 1
    pools, request = Pools(nodes), resource_request(spec)
    pool = pools.of(request)
    free = sorted((len(pools.nodes[index].free) for index in pool.usable), reverse=True)
    for counts in (free, pool.sizes):
        if len(counts) >= request.fewest and counts[request.fewest - 1]:
            return counts[request.fewest - 1]
    return 1
