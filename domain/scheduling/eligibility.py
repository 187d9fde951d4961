"""Whether the known nodes could ever do what a run asks for, and how many devices it gets by default; pure."""

from __future__ import annotations

from collections.abc import Sequence

from domain.scheduling.models import NodeState, ResourceRequest
from domain.scheduling.placement_words import where
from domain.scheduling.pools import Pools, matches
from domain.spec import RunSpec
from domain.text.lists import counted, listed


def want_of(
    spec: RunSpec,
    fence: int = 0,
    run_id: str = "",
    created_at: float = 0.0,
    duration_s: float | None = None,
    attempt: int = 1,
) -> ResourceRequest:
    """What a run's so-manieth attempt asks of placement: later ones, and elastic runs, may make do with fewer nodes."""
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


def devices_per_node(spec: RunSpec, hosts: Sequence[NodeState]) -> int:
    """Where it is not said: what so many nodes have free now, the emptiest first, or have at all; at least 1."""
    if spec.gpus_per_node is not None:
        return spec.gpus_per_node
    if spec.strategy == "single" or spec.pool == "slurm":
        return 1
    pools, want = Pools(hosts), want_of(spec)
    pool = pools.of(want)
    free = sorted((len(pools.hosts[index].free) for index in pool.usable), reverse=True)
    for counts in (free, pool.sizes):
        if len(counts) >= want.fewest and counts[want.fewest - 1]:
            return counts[want.fewest - 1]
    return 1


def refusal(spec: RunSpec, hosts: Sequence[NodeState], attempt: int = 1) -> tuple[str, str] | None:
    """The field and the sentence why an attempt could never start on these nodes, were nothing in use."""
    if spec.pool == "slurm":
        return _without_gateway(spec, hosts)
    want = want_of(spec, attempt=attempt)
    hosts = [host for host in hosts if not host.pool]
    if spec.wait_for_nodes or Pools(hosts).of(want).fits(want):
        return None
    if unknown := [name for name in spec.on_nodes if name not in {host.name for host in hosts}]:
        known = listed((host.name for host in hosts), 8) or "none"
        one = f"there is no node {unknown[0]!r}; known: {known}"
        return "on_nodes", f"on_nodes: {one}. Name others, or launch with --wait-for-nodes."
    asked = [h for h in hosts if matches(h.name, h.labels, spec.on_nodes, spec.labels)]
    field = _field(want, hosts, asked)
    registered = f"{counted(len(hosts), 'node')} {'is' if len(hosts) == 1 else 'are'} registered"
    if len(asked) < len(hosts):
        registered += f", {len(asked)} of them {'has' if len(asked) == 1 else 'have'} that name and label"
    sizes = [host.size for host in asked]
    largest = f", the largest with {counted(max(sizes), 'slot')}" if sizes else ""
    need = f"{_nodes(want)} with {counted(want.devices_per_node, 'slot')} each"
    return (
        field,
        f"{field}: the run needs {need}, but {registered}{largest}. Start another worker, lower --nodes or"
        " --gpus-per-node, or launch with --wait-for-nodes.",
    )


def _without_gateway(spec: RunSpec, hosts: Sequence[NodeState]) -> tuple[str, str] | None:
    gateways = [host for host in hosts if host.pool == "slurm"]
    if spec.wait_for_nodes or any(matches(host.name, host.labels, (), spec.labels) for host in gateways):
        return None
    if gateways:
        known = listed(host.name for host in gateways)
        return (
            "labels",
            f"labels: no gateway to Slurm has these labels; known: {known}. Leave the labels away.",
        )
    return "pool", (
        "pool: no gateway to a Slurm cluster has joined. Start `rankzero gateway --server URL` on its login "
        "node, or launch with --wait-for-nodes."
    )


def _field(want: ResourceRequest, hosts: Sequence[NodeState], asked: Sequence[NodeState]) -> str:
    """The field to change first."""
    if want.fewest > len(hosts):
        return "nodes"
    if want.fewest > len(asked):
        return "labels" if want.labels else "nodes"
    return "gpus_per_node"


def _nodes(want: ResourceRequest) -> str:
    """4 nodes; 2 to 4 nodes; 2 of gpu-1, gpu-2 and gpu-3; 2 nodes labelled rack=7"""
    if not want.labels and not want.on_nodes and want.fewest == want.nodes:
        return counted(want.nodes, "node")
    return where(want.nodes, want.on_nodes, want.labels.items(), want.fewest).removeprefix("on ")
