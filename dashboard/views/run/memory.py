"""Memory on the Run page: peak and trend of ranks and nodes, and what filled a device when an allocation failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import streamlit as st

from dashboard.planning.fixes import memory_of
from dashboard.service import service
from dashboard.views.layout import style
from dashboard.views.layout.tables import block, table
from db.metrics.performance import MemorySeries, memory_series
from domain.device_memory import KINDS, AllocatingLine, DeviceMemory, how_counted, in_words
from domain.performance.memory_growth import MemorySample, MemorySamples
from domain.text.formats import UNKNOWN, as_text, count, short_path, size
from domain.views import RunView


@style.quiet_without_store
def trends(run_id: str) -> None:
    """Show memory now, its peak, and steady growth a step; nothing before the first sample."""
    series = memory_series(service.current().store, run_id, OF_NODES)
    if rows := [row for one in series if (row := _row(one)) is not None]:
        _trends(rows)


OF_NODES = {"memory_used_bytes": "all processes", "shared_memory_used_bytes": "/dev/shm"}
OF_RANKS = {
    "own_memory_bytes": "its process",
    "workers_memory_bytes": "loader workers",
    "device_memory_bytes": "GPU, between steps",
}
COLUMNS = ("Rank", "Node", "Memory of", ">Now", ">Peak", ">Growth", "Last minutes")
LINES = ("Line", "Kind", ">In use", ">Blocks", ">Largest")
MOST_ROWS = 200
STRIP_CHARACTERS = 24
HUES = {"parameters": "#3d8fd1", "gradients": "#2a9fa8", "optimizer": "#8161b8", "other": "#d9822b"}
_RANK = re.compile(r"rank(\d+)/(\w+)")


def _trends(rows: list[list[object]]) -> None:
    st.header("Memory", anchor=False)
    rows.sort(key=lambda row: (str(row[1]), -1 if row[0] == UNKNOWN else row[0]))  # each node, then its ranks
    table("memory", COLUMNS, rows[:MOST_ROWS])
    st.caption(
        "Process memory is private memory that no file backs. Growth is shown only where the lowest "
        "values rise steadily with the steps; a bar is a share of the peak."
    )


def failure(run: RunView) -> None:
    """Show what filled the device of the first rank to fail; nothing where no snapshot was taken."""
    memory = memory_of(run)
    if memory is None:
        return
    st.header(f"Memory of rank {memory.rank} when the allocation failed", anchor=False)
    st.markdown(as_text(in_words(memory)) + ".")
    st.html(shares_bar(memory))
    if memory.lines:
        table("blocks", LINES, [_line(line) for line in memory.lines])
    st.caption(as_text(how_counted(memory)))


def shares_bar(memory: DeviceMemory) -> str:
    """Return a stacked bar of the whole device as HTML: shares, unused, free and other programs' memory."""
    parts = [(KINDS[kind], used, HUES[kind]) for kind, used in memory.shares.model_dump().items()]
    others = memory.total_bytes - memory.free_bytes - memory.reserved_bytes
    parts += [
        ("unused between tensors", memory.unused_bytes, "#9aa0b4"),
        ("CUDA and other programs", others, "#6b7086"),
        ("free", memory.free_bytes, "transparent"),
    ]
    shown = [(name, used, hue) for name, used, hue in parts if used > 0]
    total = sum(used for _, used, _ in shown) or 1
    bars = "".join(
        f'<span title="{name}" style="width:{100 * used / total:.2f}%;background:{hue}"></span>'
        for name, used, hue in shown
    )
    legend = "".join(
        f'<span style="white-space:nowrap"><i style="background:{hue};{_SWATCH}"></i>{name} {size(used)}</span>'
        for name, used, hue in shown
    )
    return (
        f'<div role="img" aria-label="Shares of the device\'s memory" style="{_BAR}">{bars}</div>'
        f'<div style="{_LEGEND}">{legend}</div>'
    )


_BAR = "display:flex;height:1.5rem;border-radius:4px;overflow:hidden;border:1px solid rgb(128 128 128 / 40%)"
_LEGEND = "display:flex;flex-wrap:wrap;gap:0.2rem 1rem;font-size:0.85rem;margin-top:0.4rem"
_SWATCH = (
    "display:inline-block;width:0.7rem;height:0.7rem;border-radius:2px;margin-right:0.4rem;"
    "border:1px solid rgb(128 128 128 / 40%)"
)


def _row(series: MemorySeries) -> list[object] | None:
    match = _RANK.fullmatch(series.tag)
    name = (OF_RANKS if match else OF_NODES).get(match[2] if match else series.tag)
    if name is None or not series.recent:
        return None
    return [
        int(match[1]) if match else UNKNOWN,
        series.node,
        name,
        size(series.recent[-1][1]),
        size(series.peak_bytes),
        _growth(series),
        strip([value for _, value, _ in series.recent], series.peak_bytes),
    ]


def _growth(series: MemorySeries) -> str:
    samples = MemorySamples()
    for step, value, at in series.recent:
        samples.add(MemorySample(step, at, value))
    growth = samples.growth()
    return UNKNOWN if growth is None else f"+{size(growth.bytes_per_step, is_coarse=True)} a step"


def strip(values: Sequence[float], peak: float) -> str:
    """Return one character for each stretch of values: its highest, as a share of the peak."""
    if not values or peak <= 0:
        return ""
    length = min(STRIP_CHARACTERS, len(values))
    bounds = [len(values) * number // length for number in range(length + 1)]
    highest = [max(values[begin:end]) for begin, end in pairwise(bounds)]
    return "".join(block(value / peak) for value in highest)


def _line(line: AllocatingLine) -> list[object]:
    place = f"{short_path(line.file)}:{line.line} in {line.function}" if line.file else "backward or native code"
    return [place, KINDS[line.kind], size(line.bytes), count(line.count), size(line.largest_bytes)]
