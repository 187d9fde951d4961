"""Whether the registered nodes could ever run a spec, and how many devices it gets by default. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from domain.scheduling.models import NodeState, ResourceRequest
from domain.scheduling.placement_words import where
from domain.scheduling.pools import Pools, matches
from domain.spec import RunSpec
from domain.text.formats import MOST_NAMED, as_list, plural


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


def refusal(spec: RunSpec, nodes: Sequence[NodeState], attempt: int = 1) -> tuple[str, str] | None:
    """(field, sentence) when an attempt could never start on these nodes, even with every device free; else None."""
    if spec.pool == "slurm":
        return _without_gateway(spec, nodes)
    request = resource_request(spec, attempt=attempt)
    nodes = [node for node in nodes if not node.pool]
    if spec.wait_for_nodes or Pools(nodes).of(request).fits(request):
        return None
    if unknown := [name for name in spec.on_nodes if name not in {node.name for node in nodes}]:
        registered_names = as_list((node.name for node in nodes), 8) or "none"
        one = f"there is no node {unknown[0]!r}; known: {registered_names}"
        return "on_nodes", f"on_nodes: {one}. Name others, or launch with --wait-for-nodes."
    matching = [h for h in nodes if matches(h.name, h.labels, spec.on_nodes, spec.labels)]
    field = _field(request, nodes, matching)
    registered = f"{plural(len(nodes), 'node')} {'is' if len(nodes) == 1 else 'are'} registered"
    if len(matching) < len(nodes):
        registered += (
            f", {len(matching)} of them {'has' if len(matching) == 1 else 'have'} that name and label"
        )
    sizes = [node.size for node in matching]
    largest = f", the largest with {plural(max(sizes), 'slot')}" if sizes else ""
    need = f"{_nodes(request)} with {plural(request.devices_per_node, 'slot')} each"
    return (
        field,
        f"{field}: the run needs {need}, but {registered}{largest}. Start another worker, lower --nodes or"
        " --gpus-per-node, or launch with --wait-for-nodes.",
    )


def _without_gateway(spec: RunSpec, nodes: Sequence[NodeState]) -> tuple[str, str] | None:
    gateways = [node for node in nodes if node.pool == "slurm"]
    if spec.wait_for_nodes or any(matches(node.name, node.labels, (), spec.labels) for node in gateways):
        return None
    if gateways:
        gateway_names = as_list((node.name for node in gateways), MOST_NAMED)
        return (
            "labels",
            f"labels: no gateway to Slurm has these labels; known: {gateway_names}. Remove the labels.",
        )
    return "pool", (
        "pool: no gateway to a Slurm cluster has joined. Start `rankzero gateway --server URL` on its login "
        "node, or launch with --wait-for-nodes."
    )


def _field(request: ResourceRequest, nodes: Sequence[NodeState], matching: Sequence[NodeState]) -> str:
    """The field of the spec to change first."""
    if request.fewest > len(nodes):
        return "nodes"
    if request.fewest > len(matching):
        return "labels" if request.labels else "nodes"
    return "gpus_per_node"


def _nodes(request: ResourceRequest) -> str:
    """4 nodes; 2 to 4 nodes; 2 of gpu-1, gpu-2 and gpu-3; 2 nodes labelled rack=7"""
    if not request.labels and not request.on_nodes and request.fewest == request.nodes:
        return plural(request.nodes, "node")
    return where(request.nodes, request.on_nodes, request.labels.items(), request.fewest).removeprefix("on ")
