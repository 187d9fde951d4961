"""Whether the registered nodes can hold a run: decided once, for the form, the preview, and submission. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from domain.scheduling.models import NodeState, ResourceRequest
from domain.scheduling.placement_words import where
from domain.scheduling.pools import Pools, matches
from domain.spec import RunSpec
from domain.text.formats import MOST_NAMED, as_list, count, plural


@dataclass(frozen=True)
class Fit:
    """Whether a run starts now, waits, or cannot start."""

    verdict: Literal["fits", "waits", "missing"]
    """missing: too few connected nodes are large enough, even with every device free."""
    sentence: str
    warning: str | None = None
    """The sentence of a preview; None where the run starts at once."""
    refusal: tuple[str, str] | None = None
    """(field, sentence) where the registered nodes could never hold it and it does not wait for others."""


def devices_per_node(spec: RunSpec, nodes: Sequence[NodeState]) -> int:
    """Devices per node of the spec, or its default: as many as enough nodes have free now, else in all; at least 1."""
    if spec.gpus_per_node is not None:
        return spec.gpus_per_node
    if spec.strategy == "single" or spec.pool == "slurm":
        return 1
    pools, request = Pools(nodes), ResourceRequest.of(spec)
    pool = pools.of(request)
    free = sorted((len(pools.nodes[index].free) for index in pool.usable), reverse=True)
    for counts in (free, pool.sizes):
        if len(counts) >= request.fewest and counts[request.fewest - 1]:
            return counts[request.fewest - 1]
    return 1


def fit(spec: RunSpec, nodes: Sequence[NodeState], attempt: int = 1) -> Fit:
    """Compare what an attempt needs with the registered nodes."""
    if spec.pool == "slurm":
        return _slurm_fit(spec, [node for node in nodes if node.pool == "slurm"])
    request = ResourceRequest.of(spec, attempt=attempt)
    pools = Pools(node for node in nodes if not node.pool)
    pool = pools.of(request)
    eligible = [pools.nodes[index] for index in pool.members]
    verdict, sentence = _start(request, [node for node in eligible if node.contact == "alive"])
    is_refused = not (spec.wait_for_nodes or pool.fits(request))
    refusal = _refusal(request, pools.nodes) if is_refused else None
    return Fit(verdict, sentence, _warning(request, eligible), refusal)


def _start(request: ResourceRequest, online: Sequence[NodeState]) -> tuple[Literal["fits", "waits", "missing"], str]:
    """The verdict and sentence for the eligible nodes that are connected."""
    need, slots = request.devices_per_node, plural(request.devices_per_node, "slot")
    free = sorted((n for n in online if n.available >= need), key=lambda n: (n.available, n.name))
    large = sorted((n for n in online if n.size >= need), key=lambda n: (-n.available, n.name))
    if len(free) >= request.fewest:
        chosen = free[: request.nodes]
        shares = (f"{need} of {plural(n.available, 'free slot')} on node {n.name}" for n in chosen)
        fewer = f" on {count(len(free))} of {plural(request.nodes, 'node')}"
        end = fewer if len(free) < request.nodes else ""
        return "fits", f"Needs {' and '.join(shares)}. It starts at once{end}."
    if len(large) >= request.fewest:
        busy = (f"{n.available} of {plural(n.size, 'slot')} free on node {n.name}" for n in large[: request.nodes])
        return "waits", f"Needs {slots} per node, {' and '.join(busy)}: it waits until runs there end."
    if not online and (request.labels or request.on_nodes):
        return "missing", "No connected node has this name and these labels."
    if not online:
        return (
            "missing",
            "No node is connected. You can still plan the run; start a worker to launch it.",
        )
    return "missing", (
        f"Needs {plural(request.fewest, 'node')} with {slots} each, but only "
        f"{plural(len(online), 'node is', 'nodes are')} connected, the largest with "
        f"{plural(max(node.size for node in online), 'slot')}. You can still plan the run; start more workers "
        "to launch it."
    )


def _warning(request: ResourceRequest, eligible: Sequence[NodeState]) -> str | None:
    """The sentence of a preview about nodes that are too small, busy or away."""
    large = sum(node.size >= request.devices_per_node for node in eligible)
    free = sum(node.available >= request.devices_per_node for node in eligible)
    need = f"The run needs {plural(request.fewest, 'node')} with {plural(request.devices_per_node, 'slot')} each"
    if large < request.fewest:
        return f"{need}; {large} of the known nodes have that many. It cannot start here."
    return f"{need}; {free} have them free now. It will wait in the queue." if free < request.fewest else None


def _refusal(request: ResourceRequest, nodes: Sequence[NodeState]) -> tuple[str, str]:
    """The field to change first, and why no registered nodes could hold the run."""
    if unknown := [name for name in request.on_nodes if name not in {node.name for node in nodes}]:
        registered_names = as_list((node.name for node in nodes), 8) or "none"
        one = f"there is no node {unknown[0]!r}; known: {registered_names}"
        return "on_nodes", f"on_nodes: {one}. Name others, or launch with --wait-for-nodes."
    matching = [node for node in nodes if matches(node.name, node.labels, request.on_nodes, request.labels)]
    field = _field(request, nodes, matching)
    registered = f"{plural(len(nodes), 'node is', 'nodes are')} registered"
    if len(matching) < len(nodes):
        registered += f", {len(matching)} of them {'has' if len(matching) == 1 else 'have'} that name and label"
    sizes = [node.size for node in matching]
    largest = f", the largest with {plural(max(sizes), 'slot')}" if sizes else ""
    need = f"{_nodes(request)} with {plural(request.devices_per_node, 'slot')} each"
    return (
        field,
        f"{field}: the run needs {need}, but {registered}{largest}. Start another worker, lower --nodes or"
        " --gpus-per-node, or launch with --wait-for-nodes.",
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


def _slurm_fit(spec: RunSpec, gateways: Sequence[NodeState]) -> Fit:
    """Whether a gateway could submit the run's job; Slurm decides when it starts."""
    has_gateway = any(matches(node.name, node.labels, (), spec.labels) for node in gateways)
    refusal = None if spec.wait_for_nodes or has_gateway else _without_gateway(gateways)
    if not gateways:
        sentence = "No Slurm gateway has joined: run `rankzero gateway` on the cluster."
        return Fit("missing", sentence, refusal=refusal)
    if not any(node.contact == "alive" for node in gateways):
        return Fit("missing", f"No contact with the gateway {gateways[0].name}.", refusal=refusal)
    sentence = "Slurm allocates the nodes and reports when the job starts or why it waits."
    return Fit("waits", sentence, refusal=refusal)


def _without_gateway(gateways: Sequence[NodeState]) -> tuple[str, str]:
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
