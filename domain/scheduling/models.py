"""What placement is given and what it gives: runs that wait, nodes and who has their devices, shares of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from domain.protocol import PROTOCOL, is_spoken

Kind = Literal["cuda", "cpu"]
Contact = Literal["alive", "no contact", "lost"]


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """A queued attempt and what it needs."""

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
    """How long it is expected to take, where that is known."""
    waits_for_nodes: bool = False
    """It may need nodes that have not joined yet."""
    fewest_nodes: int | None = None
    """With so many it starts where `nodes` are not free; None: with no fewer than `nodes`."""

    @property
    def fewest(self) -> int:
        """Nodes without which it does not start."""
        return self.fewest_nodes or self.nodes


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of one node that a run has."""

    run_id: str
    devices: tuple[str, ...]
    ends_at: float | None = None
    """When the run is expected to end, where that is known."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node: its devices that nobody uses, those our runs have, and how many belong to others."""

    node_id: str
    name: str
    free: tuple[str, ...] = ()
    holds: tuple[Allocation, ...] = ()
    foreign: int = 0
    """Devices that processes which are not ours occupy."""
    kind: Kind = "cuda"
    labels: Mapping[str, str] = field(default_factory=dict)
    contact: Contact = "alive"
    draining: bool = False
    pool: str = ""
    protocol: int = PROTOCOL

    @property
    def size(self) -> int:
        """All its devices."""
        return len(self.free) + sum(len(hold.devices) for hold in self.holds) + self.foreign

    @property
    def is_usable(self) -> bool:
        """May it be given work now?"""
        return self.contact == "alive" and not self.draining and is_spoken(self.protocol)


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices of one node, given to one attempt."""

    node_id: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """Why an attempt waits, in words, and when it will start as far as that can be foretold."""

    reason: str
    starts_at: float | None = None


@dataclass(frozen=True)
class Decision:
    """What `place` decided: who starts where (in the order of node ranks), and why the others wait."""

    placed: dict[int, list[Placement]] = field(default_factory=dict)
    waiting: dict[int, Waits] = field(default_factory=dict)
