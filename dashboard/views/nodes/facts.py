"""A node's properties: address, labels, hardware, versions, disk, clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dashboard.cluster import picture
from dashboard.views.layout.tables import Markup
from domain.text.formats import ago, as_text, clock_offset, clock_time, milliseconds, plural, size
from domain.views import NodeView

INTERPRETER = {"python": "Python", "torch": "torch", "cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL"}


def facts(node: NodeView, now: float) -> list[tuple[str, object]]:
    """Return (title, value) of each property that the node has reported."""
    properties = [*_location(node), *_hardware(node), *_versions(node), *_liveness(node, now)]
    return [(Markup(f"**{as_text(title)}**"), value) for title, value in properties if value]


def _location(node: NodeView) -> Iterator[tuple[str, object]]:
    interface = node.info.get("interface")
    yield "Address", node.address + (f" ({interface})" if interface else "")
    yield "Host", node.hostname if node.hostname != node.name else None
    yield "Pool", node.pool
    yield "Labels", ", ".join(f"{key}={value}" for key, value in sorted(node.labels.items()))


def _hardware(node: NodeView) -> Iterator[tuple[str, object]]:
    info = node.info
    yield "Devices", picture.kinds(node)
    memory = node.devices[0].memory_bytes if node.devices else None
    yield "Each with", size(memory) if memory else None
    processor = [str(info["processor"])] if info.get("processor") else []
    cores = [plural(int(info["cores"]), "core")] if info.get("cores") else []
    yield "Processor", ", ".join(processor + cores)
    yield "Memory", size(info["memory_bytes"]) if info.get("memory_bytes") else None
    load = node.load or {}
    if load.get("disk_total_bytes"):
        yield "Disk", f"{size(load['disk_free_bytes'])} free of {size(load['disk_total_bytes'])}"


def _versions(node: NodeView) -> Iterator[tuple[str, object]]:
    info, interpreter = node.info, interpreter_of(node)
    yield (
        "Trains with",
        ", ".join(f"{w} {interpreter[n]}" for n, w in INTERPRETER.items() if interpreter.get(n)),
    )
    yield "Interpreter", interpreter.get("path") or info.get("python")
    yield "Warm start", (node.load or {}).get("warm_start")
    yield "Driver", info.get("driver_version")
    yield "CUDA of the driver", info.get("cuda_version")
    yield "System", info.get("platform")


def _liveness(node: NodeView, now: float) -> Iterator[tuple[str, object]]:
    if node.info.get("clock_offset_s") is not None:
        yield "Clock", clock_sentence(node)
    yield "Last contact", f"{ago(node.last_seen, now)}, {clock_time(node.last_seen)} UTC"
    yield "Id", node.id


def clock_sentence(node: NodeView) -> str:
    """Return the clock's offset in words: agrees within 10 ms; 5.0 s ahead of the dashboard's."""
    offset_s, off_s = node.info["clock_offset_s"], picture.clock_off_s(node)
    if off_s is None:
        return f"agrees within {milliseconds(max(0.001, abs(offset_s) + (node.info.get('clock_error_s') or 0.0)))}"
    return f"{clock_offset(offset_s)} the dashboard's"


def interpreter_of(node: NodeView) -> Mapping[str, Any]:
    """Return the node's default interpreter, with its versions."""
    interpreter = node.info.get("interpreter")
    return interpreter if isinstance(interpreter, dict) else {}
