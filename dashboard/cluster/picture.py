"""The whole cluster in one small document: what each device is doing, and a sentence that sums it up. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from db.queries.device_allocations import Occupant
from db.slurm.slurm_jobs import GATEWAY
from domain.text.formats import as_list, count, duration_words, plural
from domain.views import DeviceView, NodeView

_DIGITS = re.compile(r"(\d+)")
CLOCK_AGREES_S = 1.0
MOST_SILENT_LINES = 3
MOST_CELLS = 256
"""Of one node; a machine that offers more slots is shown in part."""


class DeviceUse(StrEnum):
    """What a device is to somebody who looks for room; in the order in which people read them."""

    FREE = "free"
    OURS = "in use"
    FOREIGN = "foreign"
    """Processes that are not ours compute there: it is not given out."""
    DRAINING = "draining"
    """Free, but nothing new starts on its node: it drains, or belongs to a job of Slurm."""
    UPGRADE = "to upgrade"
    """Free, but nothing new starts on its node: its worker speaks another protocol than the dashboard."""
    SILENT = "no contact"
    LOST = "lost"


def cell(node: NodeView, device: DeviceView) -> DeviceUse:
    """A node that cannot be heard says nothing of its devices; what runs there is said beside the state."""
    if node.state == "lost":
        return DeviceUse.LOST
    if node.state != "alive":
        return DeviceUse.SILENT
    if device.run_id is not None:
        return DeviceUse.OURS
    if device.foreign:
        return DeviceUse.FOREIGN
    if node.upgrade:
        return DeviceUse.UPGRADE
    return DeviceUse.DRAINING if node.draining or node.pool else DeviceUse.FREE


def picture(nodes: Iterable[NodeView], occupants: Sequence[Occupant]) -> dict[str, Any]:
    """Plain JSON values; runs are named once, and cells point at them by their position."""
    ordered = sorted(nodes, key=lambda node: by_number(node.name))
    places = {run.id: place for place, run in enumerate(occupants)}
    return {
        "summary": summary(ordered),
        "states": [state.value for state in DeviceUse],
        "runs": [
            {"id": run.id, "name": run.name, "state": run.state, "colour": run.ordinal} for run in occupants
        ],
        "nodes": [_node(node, places) for node in ordered],
        "notices": attention(ordered),
    }


def summary(nodes: Sequence[NodeView]) -> str:
    """212 nodes: 1 480 GPUs free, 96 in use by 7 runs, 16 foreign, 8 draining, 8 to upgrade; 2 nodes lost."""
    if not nodes:
        return "No node has joined yet."
    found = Counter(cell(node, device) for node in nodes for device in node.devices)
    runs = {d.run_id for n in nodes for d in n.devices if cell(n, d) is DeviceUse.OURS}
    said = [f"{_free(nodes)} free"]
    if found[DeviceUse.OURS]:
        said.append(f"{count(found[DeviceUse.OURS])} in use by {plural(len(runs), 'run')}")
    idle = (DeviceUse.FOREIGN, DeviceUse.DRAINING, DeviceUse.UPGRADE)
    said += [f"{count(found[state])} {state}" for state in idle if found[state]]
    states = Counter(node.state for node in nodes)
    said += [
        f"{plural(states[state], 'node')} {words}"
        for state, words in (("no contact", "without contact"), ("lost", "lost"))
        if states[state]
    ]
    return f"{plural(len(nodes), 'node')}: {', '.join(said)}"


def attention(nodes: Sequence[NodeView]) -> list[dict[str, str]]:
    """What somebody should look at, one thing a line; nodes that fell silent together are one thing."""
    told: list[dict[str, str]] = []
    many = {
        state
        for state, found in Counter(node.state for node in nodes).items()
        if state != "alive" and found > MOST_SILENT_LINES
    }
    for state in sorted(many):
        silent = [node for node in nodes if node.state == state]
        name = f"{'All' if len(silent) == len(nodes) > 1 else ''} {plural(len(silent), 'node')}".strip()
        told.append({"state": state, "name": name, "text": _together(state, silent, nodes)})
    single = [node for node in nodes if node.state not in many]
    return told + [{"node": n.id, "name": n.name, "text": text} for n in single for text in notices(n)]


def notices(node: NodeView) -> list[str]:
    """What is wrong with a node, in sentences: silence first, else what its worker says itself."""
    if node.state != "alive":
        held = len({device.run_id for device in node.devices if device.run_id})
        there = f" {plural(held, 'run')} {'has' if held == 1 else 'have'} devices there." if held else ""
        return [_silence(node.state, node.silent_s) + there]
    told = [
        node.upgrade,
        *(one["message"] for one in node.unknown),
        (node.load or {}).get("notice"),
        (node.info.get("interpreter") or {}).get("problem"),
    ]
    off_s = clock_off_s(node)
    if off_s is not None:
        told.append(
            f"Its clock is {abs(off_s):.1f} s {'ahead of' if off_s > 0 else 'behind'} the dashboard's."
        )
    return [str(text) for text in told if text]


def clock_off_s(node: NodeView) -> float | None:
    """Seconds by which a node's clock is ahead of the dashboard's, where that is more than confuses nobody."""
    offset_s, error_s = node.info.get("clock_offset_s"), node.info.get("clock_error_s") or 0.0
    return offset_s if offset_s is not None and abs(offset_s) - error_s > CLOCK_AGREES_S else None


def by_number(name: str) -> list[tuple[int, int | str]]:
    """gpu-2 before gpu-10."""
    return [
        (0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name.casefold()) if part
    ]


def kinds(node: NodeView) -> str:
    """8 × NVIDIA H200, 4 slots of AMD EPYC; a gateway has no devices of its own."""
    if node.pool == GATEWAY:
        return "gateway to Slurm"
    found = Counter((device.kind, device.name) for device in node.devices)
    return ", ".join(
        f"{n} × {name}" if kind == "cuda" else f"{plural(n, 'slot')} of {name}"
        for (kind, name), n in found.items()
    )


def noun(node: NodeView) -> str:
    """What one device of a node is called."""
    return "GPU" if any(device.kind == "cuda" for device in node.devices) else "slot"


def _free(nodes: Sequence[NodeView]) -> str:
    """1 480 GPUs and 64 slots; 0 GPUs where nothing is free and most devices are GPUs."""
    known = Counter(device.kind for node in nodes for device in node.devices)
    free = Counter(d.kind for n in nodes for d in n.devices if cell(n, d) is DeviceUse.FREE)
    shown = [kind for kind in ("cuda", "cpu") if free[kind]] or [kind for kind, _ in known.most_common(1)]
    return as_list([plural(free[kind], "GPU" if kind == "cuda" else "slot") for kind in shown]) or "nothing"


def _silence(state: str, silent_s: float) -> str:
    return f"{'Lost: not' if state == 'lost' else 'Not'} heard for {duration_words(silent_s)}."


def _together(state: str, silent: Sequence[NodeView], nodes: Sequence[NodeView]) -> str:
    last_s = duration_words(min(node.silent_s for node in silent))
    said = f"{'Lost' if state == 'lost' else 'No contact'}; the last was heard {last_s} ago."
    if any(node.state == "alive" for node in nodes):
        return said
    return said + " No node is in contact: look at this machine's own network first. What trains goes on."


def _node(node: NodeView, places: dict[str, int]) -> dict[str, Any]:
    samples = {gpu.get("id"): gpu for gpu in (node.load or {}).get("gpus", [])}
    memory = node.devices[0].memory_bytes if node.devices else None
    return {
        "id": node.id,
        "name": node.name,
        "state": node.state,
        "draining": node.draining,
        "upgrade": node.upgrade is not None,
        "address": node.address,
        "labels": node.labels | ({"pool": node.pool} if node.pool else {}),
        "kinds": kinds(node),
        "noun": noun(node),
        "memory": memory,
        "load": _load(node) if node.state == "alive" else None,
        "more": max(0, len(node.devices) - MOST_CELLS),
        "cells": [_cell(node, d, samples.get(d.id, {}), places) for d in node.devices[:MOST_CELLS]],
    }


def _cell(node: NodeView, device: DeviceView, sample: dict[str, Any], places: dict[str, int]) -> list[Any]:
    """State, run, rank, utilisation in percent, bytes used: by position, because there are so many of them."""
    state = list(DeviceUse).index(cell(node, device))
    run = places.get(device.run_id) if device.run_id else None
    if node.state != "alive":
        return [state, run, device.rank]
    percent = sample.get("utilisation_percent")
    known = [
        state,
        run,
        device.rank,
        None if percent is None else round(percent),
        sample.get("memory_used_bytes"),
    ]
    while known[-1] is None:
        known.pop()
    return known


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
