"""The Nodes page: who is alive, what each device is doing, and how loaded the machines are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import service
from dashboard.views import navigation, style, tables
from dashboard.views.formats import ago, as_text, number, plural, size
from db import queries
from db.views import DeviceView, NodeView

REFRESH_S = 3
STATES: dict[str, tuple[style.Colour, str]] = {
    "alive": ("green", ":material/check_circle:"),
    "no contact": ("orange", ":material/link_off:"),
    "lost": ("red", ":material/error:"),
}
MOST_DEVICES = 64


def page() -> None:
    """One card a node."""
    style.page_title("Nodes")
    _nodes()


@st.fragment(run_every=REFRESH_S)
@style.readable_without_store
def _nodes() -> None:
    current = service.current()
    found = current.nodes()
    if not found:
        st.markdown("No node has joined yet. A node is a machine that trains; let one join with:")
    else:
        alive = [node for node in found if node.state == "alive"]
        free, slots = sum(node.free for node in alive), sum(node.slots for node in alive)
        st.caption(
            f"{len(alive)} of {plural(len(found), 'node')} alive, {free} of {plural(slots, 'slot')} free"
        )
        names = {run.id: run.name for run in queries.runs(current.store, current.clock())}
        for node in found:
            _card(node, names, current.clock())
        st.caption("Another machine joins with:")
    st.code(f"RANKZERO_TOKEN=$(rankzero token --join) rankzero worker --server {_address()}", language="bash")
    st.caption(
        "`rankzero token --join` is run on the dashboard's machine; the token goes to the node that joins."
    )


def _address() -> str:
    """The address the browser has used for the dashboard."""
    host = st.context.headers.get("Host") or "HOST:8765"
    scheme = "https" if (st.context.url or "").startswith("https") else "http"
    return f"{scheme}://{host}"


def _card(node: NodeView, names: Mapping[str, str], now: float) -> None:
    with st.container(border=True, key=f"node_{node.id}"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{as_text(node.name)}**", width="content")
            colour, icon = STATES.get(node.state, ("gray", ":material/help:"))
            st.badge(node.state, color=colour, icon=icon)
            st.caption(f"{as_text(node.address)} · last contact {ago(node.last_seen, now)}", width="content")
        if notice := (node.load or {}).get("notice"):
            st.warning(as_text(notice), icon=":material/warning:")
        _devices(node.devices, names)
        _load(node)
        st.caption(" · ".join(as_text(fact) for fact in facts(node)))


def _devices(devices: Sequence[DeviceView], names: Mapping[str, str]) -> None:
    """One cell a device: free, or the run that has it."""
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
        for position, device in enumerate(devices[:MOST_DEVICES]):
            label = device.id if device.kind == "cpu" else f"GPU {position}"
            if device.run_id is None:
                st.badge(f"{as_text(label)} free", color="gray")
            else:
                run_name = as_text(names.get(device.run_id, device.run_id))
                with st.container(key=f"cell_{device.id}", width="content"):
                    navigation.link("run", f"{as_text(label)} · {run_name}", id=device.run_id)
        if len(devices) > MOST_DEVICES:
            st.caption(f"and {len(devices) - MOST_DEVICES} more")


def _load(node: NodeView) -> None:
    load = node.load
    if not load:
        return
    used, total = load["memory_used_bytes"], load["memory_total_bytes"]
    cpu, memory, disk = st.columns(3)
    cpu.progress(_share(load["cpu_percent"], 100), text=f"CPU {number(load['cpu_percent'])} %")
    memory.progress(_share(used, total), text=f"Memory {size(used)} of {size(total)}")
    taken = load["disk_total_bytes"] - load["disk_free_bytes"]
    disk.progress(
        _share(taken, load["disk_total_bytes"]),
        text=f"Disk {size(load['disk_free_bytes'])} free of {size(load['disk_total_bytes'])}",
    )
    if load.get("gpus"):
        tables.table(f"gpus_{node.id}", GPU_COLUMNS, [_gpu_row(i, gpu) for i, gpu in enumerate(load["gpus"])])


GPU_COLUMNS = ("GPU", ">Utilisation", ">Memory", ">Temperature", ">Power")


def _gpu_row(position: int, gpu: Mapping[str, Any]) -> list[object]:
    def figure(name: str, unit: str) -> str:
        value = gpu.get(name)
        return "–" if value is None else f"{number(value)} {unit}"

    memory = size(gpu.get("memory_used_bytes"))
    if (total := gpu.get("memory_total_bytes")) is not None:
        memory += f" of {size(total)}"
    return [
        gpu.get("name") or f"GPU {position}",
        figure("utilisation_percent", "%"),
        memory,
        figure("temperature_c", "°C"),
        figure("power_w", "W"),
    ]


def facts(node: NodeView) -> list[str]:
    """Hardware and versions, as far as the worker told them."""
    kinds: dict[str, int] = {}
    for device in node.devices:
        kinds[device.name] = kinds.get(device.name, 0) + 1
    shown = [f"{amount} × {name}" for name, amount in kinds.items()]
    info = node.info
    if info.get("cores"):
        shown.append(plural(int(info["cores"]), "core"))
    versions = info.get("versions")
    if isinstance(versions, dict):
        shown += [f"{name} {version}" for name, version in versions.items() if version]
    shown += [str(info[name]) for name in ("platform", "python") if info.get(name)]
    shown += [f"{key}={value}" for key, value in node.labels.items()]
    return shown


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole else 0.0
