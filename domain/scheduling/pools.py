"""Which nodes a run may get at all: by name, by label, and of one kind of device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domain.scheduling.models import Kind, NodeState, ResourceRequest

KINDS: tuple[Kind, ...] = ("cuda", "cpu")


@dataclass(frozen=True, eq=False)
class Pool:
    """The nodes that match, as positions among all nodes; all of one kind."""

    kind: Kind
    known: tuple[int, ...]
    usable: frozenset[int]
    """Of those the ones that may be given work now."""
    sizes: tuple[int, ...]
    """Devices of the known ones, the largest first."""

    def fits(self, want: ResourceRequest) -> bool:
        """Has it what the run needs, were nothing in use?"""
        return len(self.sizes) >= want.fewest and self.sizes[want.fewest - 1] >= want.devices_per_node


class Pools:
    """All nodes in the order of their names, and for each way to ask for nodes those that match."""

    def __init__(self, hosts: Iterable[NodeState]) -> None:
        self.hosts = sorted(hosts, key=lambda host: (natural_order(host.name), host.node_id))
        self._usual: Kind = "cpu" if {host.kind for host in self.hosts} == {"cpu"} else "cuda"
        self._sizes = [host.size for host in self.hosts]
        self._pools: dict[object, dict[Kind, Pool]] = {}

    def of(self, want: ResourceRequest) -> Pool:
        """GPUs, if the run fits on GPUs that are known; else CPU slots. A run never gets both."""
        found = self._matching(want)
        for kind in KINDS:
            if found[kind].fits(want):
                return found[kind]
        return next((found[kind] for kind in KINDS if found[kind].known), found[self._usual])

    def _matching(self, want: ResourceRequest) -> dict[Kind, Pool]:
        asked = (want.pool, want.on_nodes, *sorted(want.labels.items()))
        if asked not in self._pools:
            matching = [
                index
                for index, host in enumerate(self.hosts)
                if host.pool == want.pool and matches(host.name, host.labels, want.on_nodes, want.labels)
            ]
            self._pools[asked] = {kind: self._pool(kind, matching) for kind in KINDS}
        return self._pools[asked]

    def _pool(self, kind: Kind, matching: Sequence[int]) -> Pool:
        known = tuple(index for index in matching if self.hosts[index].kind == kind)
        usable = frozenset(index for index in known if self.hosts[index].is_usable)
        return Pool(kind, known, usable, tuple(sorted((self._sizes[i] for i in known), reverse=True)))


def matches(
    name: str, node_labels: Mapping[str, str], on_nodes: Sequence[str], labels: Mapping[str, str]
) -> bool:
    """Is this one of the nodes that were asked for?"""
    if on_nodes and name not in on_nodes:
        return False
    return all(node_labels.get(key) == value for key, value in labels.items())


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """gpu-2 comes before gpu-10."""
    pieces = re.findall(r"(\d+)|(\D+)", name)
    return [(not number, int(number or 0), text) for number, text in pieces]
