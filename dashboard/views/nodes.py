"""The Nodes page: who is alive, what each device is doing, and how loaded the machines are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import service
from dashboard.interpreters import described
from dashboard.views import navigation, style
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
DEVICES_IN_A_ROW = 4


@st.fragment(run_every=REFRESH_S)
@style.readable_without_store
def page() -> None:
    """One card a node."""
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
        names = {run.id: run.name for run in queries.runs(current.store, current.now_for_contact())}
        for node in sorted(found, key=lambda node: (list(STATES).index(node.state), node.name)):
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
            if node.draining:
                st.badge("draining", color="violet", icon=":material/hourglass_bottom:")
            st.caption(f"{as_text(node.address)} · last contact {ago(node.last_seen, now)}", width="content")
            st.space("stretch")
            _drain_button(node)
        if notice := (node.load or {}).get("notice"):
            st.warning(as_text(notice), icon=":material/warning:")
        if problem := _interpreter(node).get("problem"):
            st.warning(as_text(problem), icon=":material/warning:")
        _devices(node, names)
        _load(node)
        st.caption(" · ".join(as_text(fact) for fact in facts(node)))


def _drain_button(node: NodeView) -> None:
    if node.draining:
        label, wish, meaning = "Undrain", _undrain, "Give it new runs again."
    else:
        label, wish, meaning = "Drain", _drain, "Start nothing new there; what runs goes on until it ends."
    st.button(label, key=f"drain_{node.id}", type="tertiary", help=meaning, on_click=wish, args=(node.id,))


def _drain(node_id: str) -> None:
    service.current().drain(node_id)


def _undrain(node_id: str) -> None:
    service.current().undrain(node_id)


def _devices(node: NodeView, names: Mapping[str, str]) -> None:
    """One cell a device: free, the run that has it, or somebody else's."""
    loads = {gpu.get("id"): gpu for gpu in (node.load or {}).get("gpus", [])}
    columns = st.columns(DEVICES_IN_A_ROW, gap="small")
    for position, device in enumerate(node.devices[:MOST_DEVICES]):
        with (
            columns[position % DEVICES_IN_A_ROW],
            st.container(border=True, gap=None, key=f"cell_{node.id}_{position}"),
        ):
            _device(position, device, loads.get(device.id, {}), names, node.draining)
    if len(node.devices) > MOST_DEVICES:
        st.caption(f"and {len(node.devices) - MOST_DEVICES} more")


def _device(
    position: int,
    device: DeviceView,
    load: Mapping[str, Any],
    names: Mapping[str, str],
    is_draining: bool,
) -> None:
    label = as_text(device.id if device.kind == "cpu" else f"GPU {position}")
    if device.run_id is not None:
        run_name = names.get(device.run_id, device.run_id)
        navigation.link("run", f"{label} · {as_text(run_name)}", id=device.run_id)
    elif device.foreign:
        st.markdown(f"{label} :orange[used by others]")
    elif is_draining:
        st.markdown(f"{label} :gray[draining]")
    else:
        st.markdown(f"{label} :gray[free]")
    if load:
        st.caption(as_text(" · ".join(device_load(load))))


def device_load(load: Mapping[str, Any]) -> list[str]:
    """96 %, 71 of 141 GiB, 61 °C, 540 W: as far as the device tells."""
    said = []
    if load.get("utilisation_percent") is not None:
        said.append(f"{number(load['utilisation_percent'])} %")
    if load.get("memory_used_bytes") is not None:
        total = load.get("memory_total_bytes")
        said.append(size(load["memory_used_bytes"]) + (f" of {size(total)}" if total else ""))
    said += [
        f"{number(load[name])} {unit}"
        for name, unit in (("temperature_c", "°C"), ("power_w", "W"))
        if load.get(name) is not None
    ]
    return said


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
    shown += [str(info["platform"])] if info.get("platform") else []
    shown += described(_interpreter(node)) or ([str(info["python"])] if info.get("python") else [])
    shown += [f"{key}={value}" for key, value in node.labels.items()]
    return shown


def _interpreter(node: NodeView) -> Mapping[str, Any]:
    """What trains there where a run names nothing else."""
    told = node.info.get("interpreter")
    return told if isinstance(told, dict) else {}


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole else 0.0
