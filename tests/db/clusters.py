"""Clusters and queues for the scheduler: built by hand or by hypothesis, and a clock that lets runs end."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from domain.scheduling.models import Allocation, NodeState, ResourceRequest
from domain.scheduling.placement import place, turn


def host(name: str, free: int = 8, used: Sequence[tuple[str, int, float | None]] = (), **more) -> NodeState:
    """A node with so many free devices, and runs that have (id, devices, end)."""
    ids = iter(f"{name}/{number}" for number in range(10_000))
    allocations = tuple(Allocation(run, tuple(next(ids) for _ in range(count)), end) for run, count, end in used)
    return NodeState(
        **{"node_id": f"id-{name}", "name": name, "free": tuple(next(ids) for _ in range(free))}
        | {"allocations": allocations}
        | more
    )


def want(number: int, nodes: int = 1, devices: int = 1, **more) -> ResourceRequest:
    """The run with this number in the queue."""
    given = {"fence": number, "run_id": f"run{number}", "created_at": float(number)} | more
    return ResourceRequest(nodes=nodes, devices_per_node=devices, **given)


RACKS = ("a", "b")
labels = st.sampled_from([{}, {}, {}, {"rack": "a"}, {"rack": "b"}])
priorities = st.sampled_from([0, 0, 0, 5, -5])
durations = st.none() | st.integers(1, 50).map(float)


@st.composite
def hosts(draw, most: int = 5, is_plain: bool = False):
    """Nodes with runs on them; not plain ones may be drained, lost, of CPUs, or used by others."""
    clusters = []
    for number in range(draw(st.integers(0, most))):
        used = [
            (f"old{number}.{index}", draw(st.integers(1, 3)), draw(durations))
            for index in range(draw(st.integers(0, 2)))
        ]
        node = host(f"n{number}", draw(st.integers(0, 4)), used, labels={"rack": RACKS[number % 2]})
        if not is_plain:
            node = replace(
                node,
                foreign=draw(st.sampled_from([0, 0, 0, 2])),
                kind=draw(st.sampled_from(["cuda", "cuda", "cpu"])),
                contact=draw(st.sampled_from(["alive", "alive", "alive", "no contact", "lost"])),
                draining=draw(st.sampled_from([False, False, False, True])),
            )
        clusters.append(node)
    return clusters


@st.composite
def queues(draw, most: int = 8):
    """Runs that wait."""
    return [
        want(
            number,
            draw(st.integers(1, 3)),
            draw(st.integers(1, 5)),
            fewest_nodes=draw(st.sampled_from([None, None, 1])),
            priority=draw(priorities),
            created_at=float(draw(st.integers(0, 5))),
            labels=draw(labels),
            on_nodes=draw(st.sampled_from([(), (), (), ("n0", "n1", "n2")])),
            duration_s=draw(durations),
        )
        for number in range(draw(st.integers(0, most)))
    ]


moments = st.integers(1, 6).map(float)


@st.composite
def crowds(draw, known: bool = False):
    """A few nodes and many runs that want the same devices for about the same time: (runs, nodes)."""
    ends = moments if known else st.none() | moments
    nodes = [
        host(f"n{number}", draw(st.integers(0, 3)), [(f"old{number}", draw(st.integers(1, 3)), draw(ends))])
        for number in range(draw(st.integers(1, 3)))
    ]
    wants = st.builds(
        lambda nodes, devices, duration_s, created_at: (nodes, devices, duration_s, float(created_at)),
        st.sampled_from([(1, 1), (2, 2), (1, 2)]),
        st.integers(1, 5),
        ends,
        st.integers(0, 3),
    )
    queue = [
        want(number, most, devices, fewest_nodes=fewest, duration_s=duration_s, created_at=created_at)
        for number, ((fewest, most), devices, duration_s, created_at) in enumerate(
            draw(st.lists(wants, min_size=2, max_size=8))
        )
    ]
    return queue, nodes


@dataclass
class Simulation:
    """Runs arrive, are placed, and end exactly when it was said, or when a secret says so."""

    nodes: list[NodeState]
    secret_s: float = 7.0
    """How long those take that do not say it."""
    now: float = 0.0
    started: dict[int, float] = field(default_factory=dict)
    promised: dict[int, tuple[float, float]] = field(default_factory=dict)
    """For runs that were first in line: when that was said, and the start that was foretold."""
    _events: list[tuple[float, int, ResourceRequest | str]] = field(default_factory=list)
    _queue: list[ResourceRequest] = field(default_factory=list)

    def run(self, wants: Sequence[ResourceRequest]) -> None:
        """Until nothing happens any more; runs arrive when they were created."""
        for node in self.nodes:
            for hold in node.allocations:
                self._at(self.secret_s if hold.ends_at is None else hold.ends_at, hold.run_id)
        for one in wants:
            self._at(one.created_at, one)
        while self._events:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] == self.now:
                self._happens(heapq.heappop(self._events)[2])
            self._place()

    def _at(self, when: float, what: ResourceRequest | str) -> None:
        heapq.heappush(self._events, (when, len(self._events) + len(self.started) * 1000, what))

    def _happens(self, what: ResourceRequest | str) -> None:
        if isinstance(what, ResourceRequest):
            self._queue.append(what)
            return
        for index, node in enumerate(self.nodes):
            freed = tuple(d for hold in node.allocations if hold.run_id == what for d in hold.devices)
            allocations = tuple(hold for hold in node.allocations if hold.run_id != what)
            self.nodes[index] = replace(node, free=node.free + freed, allocations=allocations)

    def _place(self) -> None:
        decision = place(self._queue, self.nodes, self.now)
        by_fence = {one.fence: one for one in self._queue}
        for fence, placements in decision.placed.items():
            one = by_fence[fence]
            self.started[fence] = self.now
            end = self.now + (self.secret_s if one.duration_s is None else one.duration_s)
            for placement in placements:
                self._hold(placement.node_id, one, placement.devices)
            self._at(end, one.run_id)
        self._queue = [one for one in self._queue if one.fence in decision.waiting]
        possible = [one for one in self._queue if decision.waiting[one.fence].starts_at is not None]
        if self._queue and possible and (first := min(self._queue, key=turn)) in possible:
            said = self.promised.get(first.fence, (self.now, decision.waiting[first.fence].starts_at))
            self.promised[first.fence] = min(said, (self.now, decision.waiting[first.fence].starts_at))

    def _hold(self, node_id: str, one: ResourceRequest, devices: tuple[str, ...]) -> None:
        index = next(i for i, node in enumerate(self.nodes) if node.node_id == node_id)
        node = self.nodes[index]
        assert set(devices) <= set(node.free)
        end = None if one.duration_s is None else self.now + one.duration_s
        free = tuple(device for device in node.free if device not in devices)
        self.nodes[index] = replace(
            node, free=free, allocations=(*node.allocations, Allocation(one.run_id, devices, end))
        )
