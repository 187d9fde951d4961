"""The inputs and outputs of placement: resource requests, nodes and their allocations, the nodes a run may get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

from domain.liveness import Contact
from domain.protocol import PROTOCOL, is_spoken
from domain.spec import RunSpec

Kind = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """A queued attempt and the resources it needs."""

    fence: int
    run_id: str
    nodes: int
    devices_per_node: int
    priority: int = 0
    created_at: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    """Each must be a label of every node it gets."""
    on_nodes: tuple[str, ...] = ()
    """Names of the only nodes it may get; empty: any."""
    pool: str = ""
    """It may get nodes of this pool alone."""
    duration_s: float | None = None
    """Expected duration; None where it is unknown."""
    waits_for_nodes: bool = False
    """It may need nodes that have not joined yet."""
    fewest_nodes: int | None = None
    """The minimum it starts with where `nodes` are not free; None: no fewer than `nodes`."""
    avoid: frozenset[tuple[str, str]] = frozenset()
    """(node id, device id) where an earlier attempt failed, used only if no others are free; an empty device id stands
    for all of the node's."""
    run_name: str = ""
    """Its name in sentences for others that wait for it; empty: its id."""

    @property
    def fewest(self) -> int:
        """The minimum number of nodes it starts with."""
        return self.fewest_nodes or self.nodes

    @classmethod
    def of(
        cls,
        spec: RunSpec,
        fence: int = 0,
        run_id: str = "",
        created_at: float = 0.0,
        duration_s: float | None = None,
        attempt: int = 1,
        run_name: str = "",
    ) -> Self:
        """The request of attempt `attempt`. Elastic runs and later attempts may start on fewer nodes."""
        is_slurm = spec.pool == "slurm"  # labels choose its gateway there, and a job has all its nodes
        return cls(
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
            run_name=run_name,
            fewest_nodes=spec.fewest_nodes if not is_slurm and (spec.elastic or attempt > 1) else None,
        )


@dataclass(frozen=True, slots=True)
class Allocation:
    """The devices of one node that a run has."""

    run_id: str
    devices: tuple[str, ...]
    ends_at: float | None = None
    """Expected end of the run; None where it is unknown."""
    run_name: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node with its free devices, the allocations of our runs, and the number of devices used by others."""

    node_id: str
    name: str
    free: tuple[str, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    foreign: int = 0
    """Number of devices used by processes that are not ours."""
    quarantined: int = 0
    """Number of unused devices in quarantine, or being tested."""
    in_quarantine: bool = False
    """Whether the whole node is in quarantine."""
    kind: Kind = "cuda"
    labels: Mapping[str, str] = field(default_factory=dict)
    contact: Contact = "alive"
    draining: bool = False
    pool: str = ""
    protocol: int = PROTOCOL

    @property
    def size(self) -> int:
        """The number of all its devices."""
        held = sum(len(allocation.devices) for allocation in self.allocations)
        return len(self.free) + held + self.foreign + self.quarantined

    @property
    def available(self) -> int:
        """The number of devices that new work may get now."""
        return len(self.free) if self.is_usable else 0

    @property
    def is_usable(self) -> bool:
        """Whether it may be given new work now."""
        is_open = not self.draining and not self.in_quarantine
        return self.contact == "alive" and is_open and is_spoken(self.protocol)


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of one node, given to one attempt."""

    node_id: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """Why an attempt waits, as a sentence, and its expected start where that is known."""

    reason: str
    starts_at: float | None = None


@dataclass(frozen=True)
class Decision:
    """The result of `place`: the placements of started attempts in the order of node ranks, and why others wait."""

    placed: dict[int, list[Placement]] = field(default_factory=dict)
    waiting: dict[int, Waits] = field(default_factory=dict)


# The nodes a run may get: by name, by label, and of one kind of device.

KINDS: tuple[Kind, ...] = ("cuda", "cpu")


@dataclass(frozen=True, eq=False)
class Pool:
    """The nodes that match a request, as indexes into `Pools.nodes`; all have one kind of device."""

    kind: Kind
    members: tuple[int, ...]
    usable: frozenset[int]
    """The members that may be given work now."""
    sizes: tuple[int, ...]
    """Device counts of the members, largest first."""

    def fits(self, request: ResourceRequest) -> bool:
        """Whether the request fits when every device is free."""
        return len(self.sizes) >= request.fewest and self.sizes[request.fewest - 1] >= request.devices_per_node


class Pools:
    """All nodes in the order of their names, and the pools of matching nodes, cached by request."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self.nodes = sorted(nodes, key=lambda node: (natural_order(node.name), node.node_id))
        self._usual: Kind = "cpu" if {node.kind for node in self.nodes} == {"cpu"} else "cuda"
        self._sizes = [node.size for node in self.nodes]
        self._pools: dict[object, dict[Kind, Pool]] = {}

    def of(self, request: ResourceRequest) -> Pool:
        """The pool of GPUs if the request fits there, else that of CPU slots; a run never gets both."""
        pools = self._matching(request)
        for kind in KINDS:
            if pools[kind].fits(request):
                return pools[kind]
        return next((pools[kind] for kind in KINDS if pools[kind].members), pools[self._usual])

    def _matching(self, request: ResourceRequest) -> dict[Kind, Pool]:
        key = (request.pool, request.on_nodes, *sorted(request.labels.items()))
        if key not in self._pools:
            matching = [
                index
                for index, node in enumerate(self.nodes)
                if node.pool == request.pool and matches(node.name, node.labels, request.on_nodes, request.labels)
            ]
            self._pools[key] = {kind: self._pool(kind, matching) for kind in KINDS}
        return self._pools[key]

    def _pool(self, kind: Kind, matching: Sequence[int]) -> Pool:
        members = tuple(index for index in matching if self.nodes[index].kind == kind)
        usable = frozenset(index for index in members if self.nodes[index].is_usable)
        return Pool(kind, members, usable, tuple(sorted((self._sizes[i] for i in members), reverse=True)))


def matches(name: str, node_labels: Mapping[str, str], on_nodes: Sequence[str], labels: Mapping[str, str]) -> bool:
    """Whether a node has one of the names and all of the labels of a request."""
    if on_nodes and name not in on_nodes:
        return False
    return all(node_labels.get(key) == value for key, value in labels.items())


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Sort key that puts gpu-2 before gpu-10."""
    pieces = re.findall(r"(\d+)|(\D+)", name)
    return [(not number, int(number or 0), text) for number, text in pieces]
