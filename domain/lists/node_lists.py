"""Lists of nodes, and of the hosts that become nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from domain.health.holders import by_position
from domain.people.rights import OWNER
from domain.text.columns import Column, Columns, Figure
from domain.text.formats import (
    ago,
    agree,
    clock_offset,
    duration_words,
    plural,
    state_label,
)

if TYPE_CHECKING:
    from domain.views import NodeView
    from domain.watching.views import GuestView


WAITING, WORKING, FAILED = "waiting", "working", "failed"
HOSTS: Columns[Any] = (
    Column("host"), Column("node"), Column("state", lambda host: host_state(host)),
    Figure("seconds", lambda host: "" if host.state == WAITING else f"{host.seconds:.0f}"), Column("message"),
)  # fmt: skip
"""Hosts as the command that installs workers has them, or as the dashboard knows them by its reports."""
CLOCK_AGREES_S = 1.0


def host_state(host: Any) -> str:
    """Return the step that a host is at, or its state."""
    return str(host.step if host.state == WORKING and host.step else host.state)


def nodes(now: float) -> Columns[NodeView]:
    """Return the columns of nodes."""
    return [
        Column("name"), Column("state", node_state), Column("address"), Figure("slots"), Figure("free"),
        Column("devices", kinds), Column("versions", lambda node: versions(node.info or {})),
        Column("runs", lambda node: " ".join(runs_on(node))),
        Column("last seen", lambda node: ago(node.last_seen, now)),
    ]  # fmt: skip


def node_state(node: NodeView) -> str:
    """Return a node's state, and why nothing new starts there: online, draining by ana."""
    by = f" by {node.drained_by}" if node.drained_by not in (None, OWNER) else ""
    flags = {f"draining{by}": node.draining, "in quarantine": node.quarantine, "to upgrade": node.upgrade}
    return ", ".join([state_label(node.state), *(flag for flag, holds in flags.items() if holds)])


def kinds(node: NodeView) -> str:
    """8 × NVIDIA H200, 4 slots of AMD EPYC; a gateway has no devices of its own."""
    if node.pool == "slurm":
        return "gateway to Slurm"
    counts = Counter((device.kind, device.name) for device in node.devices)
    return ", ".join(
        f"{n} × {name}" if kind == "cuda" else f"{plural(n, 'slot')} of {name}" for (kind, name), n in counts.items()
    )


def noun(node: NodeView) -> str:
    """The noun for one device of the node."""
    return "GPU" if any(device.kind == "cuda" for device in node.devices) else "slot"


def versions(info: Mapping[str, Any]) -> str:
    """Return the versions of a node's interpreter and driver: torch 2.13.0, CUDA 12.6, NCCL 2.27.5, driver 550.54."""
    driver = [f"driver {info['driver_version']}"] if info.get("driver_version") else []
    return ", ".join(versions_of(info.get("interpreter") or {}) + driver)


def versions_of(interpreter: Mapping[str, Any]) -> list[str]:
    """Return an interpreter's known versions: Python 3.11.8, torch 2.13.0, CUDA 12.6, NCCL 2.21.5."""
    names = {"python": "Python", "torch": "torch", "cuda": "CUDA", "rocm": "ROCm", "nccl": "NCCL"}
    return [f"{label} {interpreter[name]}" for name, label in names.items() if interpreter.get(name)]


def runs_on(node: NodeView) -> list[str]:
    """Return the ids of the runs that hold devices of the node; private ones have none."""
    runs = sorted({device.run_id for device in node.devices if device.run_id})
    return [*runs, "private"] if any(device.private for device in node.devices) else runs


def notices(node: NodeView) -> list[str]:
    """The problems of one node in sentences: its silence, otherwise the messages of its worker."""
    if node.state != "alive":
        runs = len({device.run_id for device in node.devices if device.run_id})
        affected_runs = f" {plural(runs, 'run')} {agree(runs, 'has', 'have')} devices there." if runs else ""
        silence = "Lost: silent" if node.state == "lost" else "Silent"
        return [f"{silence} for {duration_words(node.silent_s)}.{affected_runs}"]
    off_s, interpreter = clock_off_s(node), (node.info or {}).get("interpreter") or {}
    messages = [
        *quarantines(node), *(node.left_out or ()), node.upgrade, *(one["message"] for one in node.unknown or ()),
        (node.load or {}).get("notice"), interpreter.get("problem"),
        None if off_s is None else f"Its clock is {clock_offset(off_s)} the dashboard's.",
    ]  # fmt: skip
    return [str(text) for text in messages if text]


def quarantines(node: NodeView) -> list[str]:
    """Why the node, or each of its devices, is in quarantine."""
    if node.quarantine:
        return [f"In quarantine: {node.quarantine.why}"]
    return [
        f"{noun(node)} {position} is in quarantine: {device.quarantine.why}"
        for position, device in enumerate(node.devices)
        if device.quarantine
    ]


GUESTS: Columns[GuestView] = (
    Column("host"), Column("run", lambda guest: guest.run), Column("state", lambda guest: guest_state(guest)),
    Column("started by", lambda guest: guest.started), Figure("processes"),
    Column("devices", lambda guest: devices_in_words(guest.devices)),
)  # fmt: skip
"""Guests: hosts of watched runs, a row for each host and run."""


def guest_state(guest: GuestView) -> str:
    """Return the state of a guest's run, and how long the guest has been silent: running, no contact for 12 s."""
    silence = "" if guest.contact == "alive" else f", no contact for {duration_words(guest.silent_s)}"
    return f"{guest.state}{silence}"


def devices_in_words(names: Sequence[str]) -> str:
    """Return the devices by their names: 8 × NVIDIA H200."""
    return ", ".join(f"{count} × {name}" for name, count in Counter(names).items())


def other_users(node: NodeView) -> list[str]:
    """Return a sentence for each device that something besides the runs holds."""
    holders = by_position((device.id for device in node.devices), node.load)
    return [f"{noun(node)} {position} is used by {holder}" for position, holder in holders]


def clock_off_s(node: NodeView) -> float | None:
    """Seconds by which a node's clock is ahead of the dashboard's; None when the difference is negligible."""
    info = node.info or {}
    offset_s, error_s = info.get("clock_offset_s"), info.get("clock_error_s") or 0.0
    return offset_s if offset_s is not None and abs(offset_s) - error_s > CLOCK_AGREES_S else None
