"""Whether the registered nodes can hold a run, and why one waits, in words. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import neg
from typing import Literal

from domain.protocol import is_older, is_spoken
from domain.scheduling.models import Kind, NodeState, Pools, ResourceRequest, matches
from domain.spec import RunSpec
from domain.text.formats import MOST_NAMED, agree, as_list, count, plural


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
        busy = (
            f"{n.available} of {plural(n.size, 'slot')} free on node {n.name}{_left_out(n)}"
            for n in large[: request.nodes]
        )
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


def _left_out(node: NodeState) -> str:
    """Return why nothing starts on a node, whatever ends."""
    if node.in_quarantine:
        return " (in quarantine)"
    return f" ({node.quarantined} in quarantine or tested)" if node.quarantined else ""


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


# Say why a run waits: the devices it needs, those that are free, and the run it waits for. Pure.


@dataclass(frozen=True)
class Blocker:
    """The run that a waiting one waits for longest."""

    run: str
    """Its name, else its id."""
    node: str
    ends_at: float | None
    """None where its end is unknown."""
    waiting: ResourceRequest | None = None
    """Its own request, where it waits too."""


@dataclass(frozen=True)
class PlacementContext:
    """The nodes and devices that waiting runs with the same nodes to choose from might get."""

    kind: Kind
    nodes: Sequence[NodeState]
    """All registered nodes that match their requests."""
    free: Sequence[int]
    """Free devices on each of those that can be given work."""

    @property
    def unit(self) -> str:
        """The word for a device."""
        return "GPU" if self.kind == "cuda" else "slot"

    @cached_property
    def sizes(self) -> list[int]:
        """The number of all devices of each node, the largest first."""
        return sorted((node.size for node in self.nodes), reverse=True)

    @cached_property
    def out_of_reach(self) -> str:
        """Which nodes cannot be given work, and why."""
        return ", ".join(_out_of_reach(self.nodes, self.unit))


def reason(
    request: ResourceRequest,
    context: PlacementContext,
    now: float,
    holder: ResourceRequest | None,
    blocker: Blocker | None,
) -> str:
    """needs 16 GPUs on 2 nodes, 8 are free; 7f3k on gpu-2 ends in about 25 min

    `holder` has a reservation on the free devices, where these would suffice."""
    unit = context.unit
    need, total = _need(request, unit), sum(context.free)
    free = "none is free" if total == 0 else f"{total} {agree(total, 'is', 'are')} free"
    if holder is not None:
        first = holder.run_name or holder.run_id
        return f"{need}; {free}, but reserved for {first}, which {_comes_first(holder, request)}"
    if not context.free:
        return f"{need}; {_missing(request, context)}"
    shortage = f"{need}, {free}{_but(request, context.free)}"
    if blocker is None:
        return f"{shortage}; {_missing(request, context)}"
    return f"{shortage}; {_until(blocker, request, now)}"


SOME_RUN = "another run"
"""Any run in a sentence for somebody who may not see it."""
_NAMING = (
    re.compile(r"(needs .*?; .*?, but reserved for )(.+)(, which (?:has priority -?\d+|came first))", re.DOTALL),
    re.compile(
        r"(needs .*?; )(.+)( on \S+ (?:ends .+|does not say when it ends)"
        r"| is waiting, too, and (?:has priority -?\d+|came first))",
        re.DOTALL,
    ),
)
"""The sentences of `reason` that name a run, whatever its name is."""


def without_names(sentence: str, besides: Collection[str] = ()) -> str:
    """A sentence of `reason` that names no run but those `besides`."""
    for pattern in _NAMING:
        if match := pattern.fullmatch(sentence):
            before, name, after = match.groups()
            return sentence if name in besides else f"{before}{SOME_RUN}{after}"
    return sentence


def about(seconds: float) -> str:
    """in about 25 min: rounded to what the estimate is worth."""
    if seconds < 5:
        return "any moment"
    if seconds < 90:
        return f"in about {math.ceil(seconds / 10) * 10} s"
    if seconds < 90 * 60:
        return f"in about {round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"in about {round(seconds / 3600)} h"
    return f"in about {round(seconds / 86_400)} days"


def where(nodes: int, on_nodes: Sequence[str], labels: Iterable[tuple[str, str]], fewest: int | None = None) -> str:
    """on 2 nodes labelled rack=7; on one of gpu-1 and gpu-2; on 2 to 4 nodes"""
    is_range = fewest is not None and fewest < nodes
    many = f"{fewest} to {nodes}" if is_range else "one" if nodes == 1 else str(nodes)
    if on_nodes and len(on_nodes) == nodes and not is_range:
        location = f"on {as_list(on_nodes, MOST_NAMED)}"
    elif on_nodes:
        location = f"on {many} of {as_list(on_nodes, MOST_NAMED)}"
    else:
        location = f"on {many} {agree(nodes, 'node', 'nodes')}"
    label_list = ", ".join(f"{key}={value}" for key, value in sorted(labels))
    return f"{location} labelled {label_list}" if label_list else location


def _need(request: ResourceRequest, unit: str) -> str:
    at_least = "at least " if request.fewest < request.nodes else ""
    amount = f"needs {at_least}{plural(request.fewest * request.devices_per_node, unit)}"
    is_plain = request.nodes * request.devices_per_node == 1 and not request.on_nodes and not request.labels
    location = where(request.nodes, request.on_nodes, request.labels.items(), request.fewest)
    return amount if is_plain else f"{amount} {location}"


def _but(request: ResourceRequest, free: Sequence[int]) -> str:
    """The clause for devices that suffice in total but not on each node; empty when they do not suffice in total."""
    if sum(free) < request.fewest * request.devices_per_node:
        return ""
    if request.fewest == 1:
        return f", but at most {max(free)} on one node"
    able = sum(count >= request.devices_per_node for count in free)
    having = {0: "no node has", 1: "only 1 node has"}.get(able, f"only {able} nodes have")
    return f", but {having} {request.devices_per_node} of them"


def _comes_first(first: ResourceRequest, other: ResourceRequest) -> str:
    return f"has priority {first.priority}" if first.priority > other.priority else "came first"


def _until(blocker: Blocker, request: ResourceRequest, now: float) -> str:
    if blocker.waiting is not None:
        return f"{blocker.run} is waiting, too, and {_comes_first(blocker.waiting, request)}"
    if blocker.ends_at is None:
        return f"{blocker.run} on {blocker.node} does not say when it ends"
    return f"{blocker.run} on {blocker.node} ends {about(blocker.ends_at - now)}"


def _missing(request: ResourceRequest, context: PlacementContext) -> str:
    """Why the request could not start even if all runs ended."""
    if not context.nodes:
        return "no such node has joined" if request.on_nodes or request.labels else "no node has joined"
    # From the largest to the smallest, so that those of a size are not counted for each of many requests.
    large, largest = bisect_right(context.sizes, -request.devices_per_node, key=neg), context.sizes[0]
    if not large:
        return f"the largest registered node has {plural(largest, context.unit)}"
    if large < request.fewest:
        return f"only {plural(large, 'node')} of that size {agree(large, 'is', 'are')} known"
    return context.out_of_reach


def _out_of_reach(nodes: Sequence[NodeState], unit: str) -> list[str]:
    silent = [node.name for node in nodes if node.contact == "no contact"]
    lost = [node.name for node in nodes if node.contact == "lost"]
    draining = [node.name for node in nodes if node.draining and node.contact == "alive"]
    occupied = [node for node in nodes if node.foreign and node.is_usable]
    untrusted = [node for node in nodes if node.quarantined and node.is_usable]
    left_out = [node.name for node in nodes if node.in_quarantine and node.contact == "alive"]
    mute = [node for node in nodes if not is_spoken(node.protocol) and node.contact == "alive"]
    old = [node.name for node in mute if is_older(node.protocol)]
    new = [node.name for node in mute if not is_older(node.protocol)]
    reasons = [f"no contact with {as_list(silent, MOST_NAMED)}"] if silent else []
    reasons += [
        f"{as_list(names, MOST_NAMED)} {agree(len(names), 'is', 'are')} {state}"
        for names, state in (
            (lost, "lost"),
            (draining, "draining"),
            (left_out, "in quarantine"),
            (new, "newer than this dashboard"),
        )
        if names
    ]
    if old:
        workers = agree(len(old), "worker", "workers")
        reasons.append(f"the {workers} of {as_list(old, MOST_NAMED)} must be upgraded first")
    if occupied:
        used = sum(node.foreign for node in occupied)
        on = as_list((node.name for node in occupied), MOST_NAMED)
        reasons.append(f"other programs use {plural(used, unit)} of {on}")
    if untrusted:
        devices = sum(node.quarantined for node in untrusted)
        on = as_list((node.name for node in untrusted), MOST_NAMED)
        reasons.append(f"{plural(devices, unit)} of {on} {agree(devices, 'is', 'are')} in quarantine or tested")
    return reasons
