"""The whole cluster in one small document: the use of each device, and a sentence that sums it up. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from db.nodes.node_queries import Occupant
from domain.lists.node_lists import kinds, notices, noun
from domain.text.formats import as_list, count, duration_words, plural
from domain.views import DeviceView, NodeView


def picture(nodes: Iterable[NodeView], occupants: Sequence[Occupant]) -> dict[str, Any]:
    """Plain JSON values; each run is named once, and cells refer to it by position."""
    ordered = sorted(nodes, key=lambda node: natural_key(node.name))
    run_positions = {run.id: position for position, run in enumerate(occupants)}
    return {
        "summary": summary(ordered),
        "states": [state.value for state in DeviceUse],
        "runs": [{"id": run.id, "name": run.name, "state": run.state, "colour": run.ordinal} for run in occupants],
        "nodes": [_node(node, run_positions) for node in ordered],
        "notices": attention(ordered),
    }


_DIGITS = re.compile(r"(\d+)")
MOST_SILENT_LINES = 3
MOST_CELLS = 256
"""Cells drawn for one node; further slots are only counted."""


class DeviceUse(StrEnum):
    """The use of a device, in the order of display."""

    FREE = "free"
    OURS = "in use"
    FOREIGN = "foreign"
    """In use by processes that are not ours: it is not allocated."""
    DRAINING = "draining"
    """Free, but nothing new starts on its node: it drains, or belongs to a Slurm job."""
    UPGRADE = "to upgrade"
    """Free, but nothing new starts on its node: its worker speaks another protocol than the dashboard."""
    QUARANTINE = "quarantine"
    """Free, but left out: it, or its node, cannot be trusted."""
    SILENT = "no contact"
    LOST = "lost"


def cell(node: NodeView, device: DeviceView) -> DeviceUse:
    """The use of one device; nothing is claimed of the devices of a node without contact."""
    if node.state == "lost":
        return DeviceUse.LOST
    if node.state != "alive":
        return DeviceUse.SILENT
    if device.has_run:
        return DeviceUse.OURS
    if device.foreign:
        return DeviceUse.FOREIGN
    if device.quarantine:
        return DeviceUse.QUARANTINE
    if node.upgrade:
        return DeviceUse.UPGRADE
    return DeviceUse.DRAINING if node.draining or node.pool else DeviceUse.FREE


def summary(nodes: Sequence[NodeView]) -> str:
    """212 nodes: 1 480 GPUs free, 96 in use by 7 runs, 16 used by others, 8 draining; 2 nodes lost."""
    if not nodes:
        return "No node has joined yet."
    uses = Counter(cell(node, device) for node in nodes for device in node.devices)
    ours = [d for n in nodes for d in n.devices if cell(n, d) is DeviceUse.OURS]
    phrases = [f"{_free(nodes)} free"]
    if uses[DeviceUse.OURS]:
        phrases.append(f"{count(uses[DeviceUse.OURS])} in use by {_users(ours)}")
    phrases += [
        f"{count(uses[use])} {phrase}"
        for use, phrase in (
            (DeviceUse.FOREIGN, "used by others"),
            (DeviceUse.DRAINING, "draining"),
            (DeviceUse.UPGRADE, "to upgrade"),
            (DeviceUse.QUARANTINE, "in quarantine"),
        )
        if uses[use]
    ]
    states: Counter[str] = Counter(node.state for node in nodes)
    phrases += [
        f"{plural(states[state], 'node')} {phrase}"
        for state, phrase in (("no contact", "without contact"), ("lost", "lost"))
        if states[state]
    ]
    return f"{plural(len(nodes), 'node')}: {', '.join(phrases)}"


def _users(devices: Sequence[DeviceView]) -> str:
    """7 runs and private ones."""
    runs = {device.run_id for device in devices if device.run_id is not None}
    named = [plural(len(runs), "run")] if runs else []
    private = ["private ones" if runs else "private runs"] if any(device.private for device in devices) else []
    return as_list([*named, *private])


def attention(nodes: Sequence[NodeView]) -> list[dict[str, str]]:
    """The cluster's notices, one per line; nodes that fell silent together share one."""
    shown: list[dict[str, str]] = []
    crowded_states = {
        state
        for state, number in Counter(node.state for node in nodes).items()
        if state != "alive" and number > MOST_SILENT_LINES
    }
    for state in sorted(crowded_states):
        silent = [node for node in nodes if node.state == state]
        name = f"{'All' if len(silent) == len(nodes) > 1 else ''} {plural(len(silent), 'node')}".strip()
        shown.append({"state": state, "name": name, "text": _together(state, silent, nodes)})
    single = [node for node in nodes if node.state not in crowded_states]
    return shown + [{"node": n.id, "name": n.name, "text": text} for n in single for text in notices(n)]


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """A sorting key that puts gpu-2 before gpu-10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name.casefold()) if part]


def _free(nodes: Sequence[NodeView]) -> str:
    """1 480 GPUs and 64 slots; 0 GPUs where nothing is free and most devices are GPUs."""
    counts = Counter(device.kind for node in nodes for device in node.devices)
    free = Counter(d.kind for n in nodes for d in n.devices if cell(n, d) is DeviceUse.FREE)
    kinds = [kind for kind in ("cuda", "cpu") if free[kind]] or [kind for kind, _ in counts.most_common(1)]
    return as_list([plural(free[kind], "GPU" if kind == "cuda" else "slot") for kind in kinds]) or "nothing"


def _together(state: str, silent: Sequence[NodeView], nodes: Sequence[NodeView]) -> str:
    last_s = duration_words(min(node.silent_s for node in silent))
    sentence = f"{'Lost' if state == 'lost' else 'No contact'}; the last was heard {last_s} ago."
    if any(node.state == "alive" for node in nodes):
        return sentence
    return sentence + " No node is in contact: check this machine's own network first. Running jobs continue to train."


def _node(node: NodeView, run_positions: dict[str, int]) -> dict[str, Any]:
    samples = {gpu.get("id"): gpu for gpu in (node.load or {}).get("gpus", [])}
    memory = node.devices[0].memory_bytes if node.devices else None
    return {
        "id": node.id,
        "name": node.name,
        "state": node.state,
        "draining": node.draining,
        "upgrade": node.upgrade is not None,
        "quarantine": node.quarantine is not None,
        "address": node.address,
        "labels": node.labels | ({"pool": node.pool} if node.pool else {}),
        "kinds": kinds(node),
        "noun": noun(node),
        "memory": memory,
        "load": _load(node) if node.state == "alive" else None,
        "more": max(0, len(node.devices) - MOST_CELLS),
        "cells": [_cell(node, d, samples.get(d.id, {}), run_positions) for d in node.devices[:MOST_CELLS]],
    }


def _cell(node: NodeView, device: DeviceView, sample: dict[str, Any], run_positions: dict[str, int]) -> list[Any]:
    """State, run, rank, utilisation in percent, bytes used: by position, because there are so many of them."""
    state = list(DeviceUse).index(cell(node, device))
    run = run_positions.get(device.run_id) if device.run_id else None
    if node.state != "alive":
        return [state, run, device.rank]
    percent = sample.get("utilisation_percent")
    values = [
        state,
        run,
        device.rank,
        None if percent is None else round(percent),
        sample.get("memory_used_bytes"),
    ]
    while values[-1] is None:
        values.pop()
    return values


def _load(node: NodeView) -> list[int] | None:
    """Processor, memory and disk in percent."""
    load = node.load
    if not load:
        return None
    memory, disk = load.get("memory_total_bytes"), load.get("disk_total_bytes")
    return [
        round(load.get("cpu_percent", 0.0)),
        round(100 * load["memory_used_bytes"] / memory) if memory else 0,
        round(100 * (1 - load["disk_free_bytes"] / disk)) if disk else 0,
    ]
