"""The details of one node, beside the cells: problems, runs, devices, load and properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from dashboard.cluster import picture
from dashboard.service import service
from dashboard.views.layout import actions, links, permissions, style, visitor
from dashboard.views.layout.tables import Markup, table
from db.nodes.node_queries import Occupant, occupants
from db.people import consequences
from domain.health.views import IncidentView
from domain.lists import node_lists
from domain.people.roles import Action
from domain.protocol import is_older
from domain.text.formats import (
    ago,
    as_text,
    clock_minute,
    clock_offset,
    clock_time,
    milliseconds,
    number,
    plural,
    size,
    state_label,
)
from domain.views import DeviceView, NodeView

REFRESH_S = 3


@style.quiet_without_store
def panel(node_id: str, close: Callable[[], None]) -> None:
    """Show the panel over the right of the page until it is closed."""
    style.refresh_within(REFRESH_S)
    current = service.current()
    node = next((node for node in current.nodes() if node.id == node_id), None)
    if node is None:  # it was removed
        close()
        st.rerun()
    with st.container(key="node_details"):
        _header(node.name, close)
        _badges(node)
        _actions(node)
        _quarantine(node)
        _incidents(node)
        _warnings(node)
        runs = {run.id: run for run in occupants(current.store)}
        _runs(node, runs)
        _devices(node)
        _load(node)
        table("node_facts", ("Property", "Value"), facts(node, current.clock()))


MOST_DEVICES = 64
MOST_INCIDENTS = 50
MOST_WRONG = 4
TEST_SHOWN_S = 24 * 3600.0
WHOLE_TEST = "test"
"""The part that a result is of where nothing could be tested."""
TESTED = {"passed": "passed", "failed": "found wrong results", "unknown": "could not be done"}
STATES: dict[str, tuple[style.Colour, str]] = {
    "alive": ("green", ":material/check_circle:"),
    "no contact": ("orange", ":material/link_off:"),
    "lost": ("red", ":material/error:"),
}


def _header(title: str, close: Callable[[], None]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(as_text(title), anchor=False)
        st.button(
            "Close", icon=":material/close:", type="tertiary", on_click=close,
            key="close_node", help="Or press Escape among the cells",
        )  # fmt: skip


def _badges(node: NodeView) -> None:
    colour, icon = STATES.get(node.state, ("gray", ":material/help:"))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(state_label(node.state), color=colour, icon=icon)
        if node.draining:
            by = permissions.signed(node.drained_by, " ")
            st.badge(as_text(f"draining{by}: starts nothing new"), color="violet", icon=":material/hourglass_bottom:")
        if node.quarantine:
            st.badge("in quarantine: starts nothing new", color="red", icon=":material/shield:")
        if node.upgrade:
            label = "to upgrade" if is_older(node.protocol) else "newer than this dashboard"
            st.badge(label, color="orange", icon=":material/upgrade:")
        noun = node_lists.noun(node)
        slot_note = " (a slot trains one process)" if noun == "slot" else ""
        st.caption(as_text(f"{node.free} of {plural(node.slots, noun)} free{slot_note}"))


def _actions(node: NodeView) -> None:
    with st.container(horizontal=True):
        label = "Undrain" if node.draining else "Drain"
        drained = "Start nothing new there; its runs continue until they end."
        help_text = "Let it receive new runs again." if node.draining else drained
        limits = permissions.limits(Action.OPERATE, None, help=help_text)
        st.button(label, key=f"drain_{node.id}", on_click=_drain, args=(node,), **limits)
        if not node.pool and node.state == "alive":
            test_help = "Check matrix products, memory and sums on devices without a run; takes a minute."
            limits = permissions.limits(Action.OPERATE, None, help=test_help)
            st.button("Test", key=f"test_{node.id}", on_click=_test, args=(node,), **limits)
        limits = permissions.limits(Action.OPERATE, None)
        if st.button("Remove", type="tertiary", icon=":material/delete:", key=f"remove_{node.id}", **limits):
            actions.ask(_remove, node)


@visitor.acts
def _drain(node: NodeView) -> None:
    """Drain the node, or end its draining; asks where others train on it."""
    current = service.current()
    if node.draining:
        actions.told(current.undrain)(node.id)
        return
    question = actions.Question(
        node.id, f"Drain {node.name}?", "Drain it", "Leave it", partial(consequences.of_drain, current.store, node.id)
    )
    actions.act_or_ask(question, partial(current.drain, node.id))


@visitor.dialog("Remove this node?", icon=":material/delete:")
def _remove(node: NodeView) -> None:
    """Ask before a node is removed; active runs prevent it, past ones stay readable."""
    worker = "Its worker ends, and joins again only with a join token. " if node.state == "alive" else ""
    st.markdown(f"**{as_text(node.name)}** leaves the cluster. {worker}Its past runs stay in the history.")
    actions.confirm(node.id, "Remove it", "Keep it", lambda: service.current().remove_node(node.id))


def _quarantine(node: NodeView) -> None:
    """Show why the node, or devices of it, are left out, and what brings them back."""
    reasons = node_lists.quarantines(node)
    for text in reasons:
        st.error(as_text(text), icon=":material/shield:")
    if reasons:
        st.caption("Nothing new starts there until a test passes, or until you release it.")
        help_text = "Let new runs start there again; earlier findings no longer count."
        limits = permissions.limits(Action.OPERATE, None, help=help_text)
        st.button("Release", key=f"release_{node.id}", on_click=_release, args=(node,), **limits)
    _latest_test(node)


def _latest_test(node: NodeView) -> None:
    """Show a test that is under way, or how the latest one of this day ended."""
    health = service.current().health
    latest = health.latest_test(node.id)
    if latest is None or (node.quarantine is None and service.current().clock() - latest.asked_at > TEST_SHOWN_S):
        return
    if latest.ended_at is None:
        st.info(f"Testing {plural(len(latest.devices), node_lists.noun(node))} …", icon=":material/labs:")
        return
    positions = {device.id: f"{node_lists.noun(node)} {position}: " for position, device in enumerate(node.devices)}
    wrong = [
        one.text if one.part == WHOLE_TEST else _as_sentence(f"{positions.get(one.device, '')}{one.part}: {one.text}")
        for one in latest.results
        if one.is_right is not True
    ]
    by = permissions.signed(latest.by, " ")
    text = f"Test{by} at {clock_minute(latest.ended_at)} {TESTED[latest.verdict or 'unknown']}."
    show = st.success if latest.verdict == "passed" else st.warning
    show(as_text(" ".join([text, *wrong[:MOST_WRONG]])), icon=":material/labs:")


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


@actions.told
def _test(node: NodeView) -> None:
    """Have the node test its devices."""
    service.current().health.ask_test(node.id)


@actions.told
def _release(node: NodeView) -> None:
    """End the quarantines of the node and its devices."""
    service.current().health.release(node.id)


def _incidents(node: NodeView) -> None:
    """Show what is remembered of the node's health."""
    remembered = service.current().health.incidents(node.id)
    if not remembered:
        return
    positions = {device.id: f"{node_lists.noun(node)} {position}, " for position, device in enumerate(node.devices)}
    with st.expander(f"Health history ({len(remembered)})", icon=":material/history:"):
        rows = [
            [clock_time(one.at)[:-3], Markup(positions.get(one.device or "", "") + _in_words(one))]
            for one in remembered[:MOST_INCIDENTS]
        ]
        table("node_incidents", ("When (UTC)", "What"), rows)


def _in_words(incident: IncidentView) -> str:
    """An incident as Markdown, its kind in bold where it counts against the hardware."""
    if incident.text.startswith(incident.kind):
        return as_text(incident.text)
    kind = f"**{as_text(incident.kind)}**" if incident.is_strike else as_text(incident.kind)
    return f"{kind}: {as_text(incident.text)}"


def _warnings(node: NodeView) -> None:
    for text in node_lists.notices(node):
        if text in node_lists.quarantines(node):
            continue
        st.warning(as_text(text), icon=":material/warning:")
    endings = {str(run["run_id"]): bool(run["ending"]) for run in node.unknown}
    for run_id, is_ending in endings.items():
        label = f"Ending run {run_id} …" if is_ending else f"End run {run_id} here"
        icon, key = ":material/stop_circle:", f"end_unknown_{node.id}_{run_id}"
        if st.button(label, icon=icon, key=key, **permissions.limits(Action.OPERATE, None, disabled=is_ending)):
            actions.ask(_end_unknown, node, run_id)


@visitor.dialog("End this run?", icon=":material/stop_circle:")
def _end_unknown(node: NodeView, run_id: str) -> None:
    """Nothing here can resume it: the store that began it is gone."""
    st.markdown(
        f"Run **{as_text(run_id)}**, unknown to this dashboard, ends on {as_text(node.name)}. "
        "Its data stays there; nothing here can resume it."
    )
    actions.confirm(
        f"{node.id}_{run_id}", "End it", "Keep it running", lambda: service.current().end_unknown(node.id, run_id)
    )


def _runs(node: NodeView, runs: Mapping[str, Occupant]) -> None:
    """Show links to the node's runs, also for the keyboard."""
    by_run: dict[str, list[DeviceView]] = {}
    for device in node.devices:
        if device.run_id is not None:
            by_run.setdefault(device.run_id, []).append(device)
    if private := sum(device.private for device in node.devices):
        st.caption(f"{plural(private, node_lists.noun(node))} in use by private runs")
    for run_id, devices in by_run.items():
        run = runs.get(run_id)
        name = f"{run.name} · {run.state}" if run else run_id
        noun = plural(len(devices), node_lists.noun(node))
        label = f"{name} · {noun}, {ranks(devices)}"
        links.link("run", label, f"node_run_{run_id}", "chart", "tertiary", id=run_id)


def ranks(devices: Sequence[DeviceView]) -> str:
    """Return the ranks on devices as text: rank 3, ranks 0-7."""
    numbers = sorted({device.rank for device in devices if device.rank is not None})
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    is_range = numbers and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"ranks {numbers[0]}-{numbers[-1]}" if is_range else f"ranks {', '.join(map(str, numbers))}"


def _devices(node: NodeView) -> None:
    loads = {gpu.get("id"): gpu for gpu in (node.load or {}).get("gpus", [])}
    if not loads:
        return  # CPU slots have no properties of their own
    rows = [
        [index, state_label(picture.cell(node, device).value), *device_load(loads.get(device.id, {}))]
        for index, device in enumerate(node.devices[:MOST_DEVICES])
    ]
    table("node_devices", (node_lists.noun(node), "State", ">Busy", ">Memory", ">°C", ">W"), rows)
    for text in node_lists.other_users(node):
        st.caption(as_text(text))


def device_load(load: Mapping[str, Any]) -> list[str]:
    """Return busy share, used memory, °C and W as text; empty where the device does not report them."""
    used = load.get("memory_used_bytes")
    percent = load.get("utilisation_percent")
    return [
        "" if percent is None else f"{number(percent)} %",
        "" if used is None else size(used),
        *("" if load.get(name) is None else number(load[name]) for name in ("temperature_c", "power_w")),
    ]


def _load(node: NodeView) -> None:
    load = node.load
    if not load or node.state != "alive":
        return
    used, total = load["memory_used_bytes"], load["memory_total_bytes"]
    st.progress(_share(load["cpu_percent"], 100), text=f"CPU {number(load['cpu_percent'])} %")
    st.progress(_share(used, total), text=f"Memory {size(used)} of {size(total)}")
    used_disk = load["disk_total_bytes"] - load["disk_free_bytes"]
    st.progress(
        _share(used_disk, load["disk_total_bytes"]),
        text=f"Disk {size(load['disk_free_bytes'])} free of {size(load['disk_total_bytes'])}",
    )


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole else 0.0


# A node's properties: address, labels, hardware, versions, disk, clock.


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
    yield "Devices", node_lists.kinds(node)
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
    yield "Trains with", ", ".join(node_lists.versions_of(interpreter))
    yield "Interpreter", interpreter.get("path") or info.get("python")
    yield "Warm start", (node.load or {}).get("warm_start")
    yield "Trainings run as", "accounts of their people" if info.get("run_as") == "accounts" else None
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
    offset_s, off_s = node.info["clock_offset_s"], node_lists.clock_off_s(node)
    if off_s is None:
        return f"agrees within {milliseconds(max(0.001, abs(offset_s) + (node.info.get('clock_error_s') or 0.0)))}"
    return f"{clock_offset(offset_s)} the dashboard's"


def interpreter_of(node: NodeView) -> Mapping[str, Any]:
    """Return the node's default interpreter, with its versions."""
    interpreter = node.info.get("interpreter")
    return interpreter if isinstance(interpreter, dict) else {}
