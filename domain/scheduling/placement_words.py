"""Why a run waits, in words: what it needs, what is free, and whose end it waits for; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from domain.protocol import is_older, is_spoken
from domain.scheduling.models import Kind, NodeState, ResourceRequest
from domain.text.lists import counted, listed


@dataclass(frozen=True)
class Blocker:
    """The run whose end a waiting one waits for longest."""

    run_id: str
    node: str
    ends_at: float | None
    """None where it does not say."""
    waiting: ResourceRequest | None = None
    """Itself, where it waits too."""


@dataclass(frozen=True)
class PlacementContext:
    """What there is for a run that waits."""

    kind: Kind
    hosts: Sequence[NodeState]
    """All known nodes that it may get."""
    free: Sequence[int]
    """Devices that are free on each of those that can be given work."""
    kept_for: ResourceRequest | None = None
    """The run for which the free ones are kept, where they would be enough."""
    blocker: Blocker | None = None


def reason(want: ResourceRequest, there: PlacementContext, now: float) -> str:
    """needs 16 GPUs on 2 nodes, 8 are free; 7f3k on gpu-2 ends in about 25 min"""
    unit = "GPU" if there.kind == "cuda" else "slot"
    need, total = _need(want, unit), sum(there.free)
    free = "none is free" if total == 0 else f"{total} {'is' if total == 1 else 'are'} free"
    if there.kept_for is not None:
        return f"{need}; {free}, but kept for {there.kept_for.run_id}, which {_comes_first(there.kept_for, want)}"
    if not there.free:
        return f"{need}; {_missing(want, there.hosts, unit)}"
    said = f"{need}, {free}{_but(want, there.free)}"
    if there.blocker is None:
        return f"{said}; {_missing(want, there.hosts, unit)}"
    return f"{said}; {_until(there.blocker, want, now)}"


def about(seconds: float) -> str:
    """in about 25 min: as exact as it is worth."""
    if seconds < 5:
        return "any moment"
    if seconds < 90:
        return f"in about {math.ceil(seconds / 10) * 10} s"
    if seconds < 90 * 60:
        return f"in about {round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"in about {round(seconds / 3600)} h"
    return f"in about {round(seconds / 86_400)} days"


def where(
    nodes: int, on_nodes: Sequence[str], labels: Iterable[tuple[str, str]], fewest: int | None = None
) -> str:
    """on 2 nodes labelled rack=7; on one of gpu-1 and gpu-2; on 2 to 4 nodes"""
    is_range = fewest is not None and fewest < nodes
    many = f"{fewest} to {nodes}" if is_range else "one" if nodes == 1 else str(nodes)
    if on_nodes and len(on_nodes) == nodes and not is_range:
        place = f"on {listed(on_nodes)}"
    elif on_nodes:
        place = f"on {many} of {listed(on_nodes)}"
    else:
        place = f"on {many} {'node' if nodes == 1 else 'nodes'}"
    asked = ", ".join(f"{key}={value}" for key, value in sorted(labels))
    return f"{place} labelled {asked}" if asked else place


def _need(want: ResourceRequest, unit: str) -> str:
    at_least = "at least " if want.fewest < want.nodes else ""
    said = f"needs {at_least}{counted(want.fewest * want.devices_per_node, unit)}"
    is_plain = want.nodes * want.devices_per_node == 1 and not want.on_nodes and not want.labels
    place = where(want.nodes, want.on_nodes, want.labels.items(), want.fewest)
    return said if is_plain else f"{said} {place}"


def _but(want: ResourceRequest, free: Sequence[int]) -> str:
    """Enough in all may be too few on each node."""
    if sum(free) < want.fewest * want.devices_per_node:
        return ""
    if want.fewest == 1:
        return f", but at most {max(free)} on one node"
    able = sum(count >= want.devices_per_node for count in free)
    having = {0: "no node has", 1: "only 1 node has"}.get(able, f"only {able} nodes have")
    return f", but {having} {want.devices_per_node} of them"


def _comes_first(one: ResourceRequest, other: ResourceRequest) -> str:
    return f"has priority {one.priority}" if one.priority > other.priority else "came first"


def _until(blocker: Blocker, want: ResourceRequest, now: float) -> str:
    if blocker.waiting is not None:
        return f"{blocker.run_id} waits too and {_comes_first(blocker.waiting, want)}"
    if blocker.ends_at is None:
        return f"{blocker.run_id} on {blocker.node} does not say when it ends"
    return f"{blocker.run_id} on {blocker.node} ends {about(blocker.ends_at - now)}"


def _missing(want: ResourceRequest, hosts: Sequence[NodeState], unit: str) -> str:
    """Why all ends of all runs would not be enough."""
    large = [host for host in hosts if host.size >= want.devices_per_node]
    if not hosts:
        return "no such node has joined" if want.on_nodes or want.labels else "no node has joined"
    if len(large) < want.fewest:
        largest = max(host.size for host in hosts)
        if largest < want.devices_per_node:
            return f"the largest node that is known has {counted(largest, unit)}"
        return f"only {counted(len(large), 'node')} of that size {'is' if len(large) == 1 else 'are'} known"
    return ", ".join(_out_of_reach(hosts, unit))


def _out_of_reach(hosts: Sequence[NodeState], unit: str) -> list[str]:
    silent = [host.name for host in hosts if host.contact == "no contact"]
    lost = [host.name for host in hosts if host.contact == "lost"]
    draining = [host.name for host in hosts if host.draining and host.contact == "alive"]
    others = [host for host in hosts if host.foreign and host.is_usable]
    mute = [host for host in hosts if not is_spoken(host.protocol) and host.contact == "alive"]
    old = [host.name for host in mute if is_older(host.protocol)]
    new = [host.name for host in mute if not is_older(host.protocol)]
    said = [f"no contact with {listed(silent)}"] if silent else []
    said += [
        f"{listed(names)} {_be(names)} {state}"
        for names, state in ((lost, "lost"), (draining, "draining"), (new, "newer than this dashboard"))
        if names
    ]
    if old:
        said.append(f"the {'worker' if len(old) == 1 else 'workers'} of {listed(old)} must be upgraded first")
    if others:
        used = sum(host.foreign for host in others)
        on = listed(host.name for host in others)
        said.append(f"other programs use {counted(used, unit)} of {on}")
    return said


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
