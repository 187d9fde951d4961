"""The inputs and outputs of placement: resource requests, node states with their allocations, and placements."""

from __future__ import annotations

from collections.abc import Mapping
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
    run_name: str = ""
    """By which others that wait for it are told of it; empty: by its id."""

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
    kind: Kind = "cuda"
    labels: Mapping[str, str] = field(default_factory=dict)
    contact: Contact = "alive"
    draining: bool = False
    pool: str = ""
    protocol: int = PROTOCOL

    @property
    def size(self) -> int:
        """The number of all its devices."""
        return len(self.free) + sum(len(allocation.devices) for allocation in self.allocations) + self.foreign

    @property
    def available(self) -> int:
        """The number of devices that new work may get now."""
        return len(self.free) if self.is_usable else 0

    @property
    def is_usable(self) -> bool:
        """Whether it may be given new work now."""
        return self.contact == "alive" and not self.draining and is_spoken(self.protocol)


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
