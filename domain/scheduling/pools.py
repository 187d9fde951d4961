"""The nodes a run may get: by name, by label, and of one kind of device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domain.scheduling.models import Kind, NodeState, ResourceRequest

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
