"""`rankzero nodes, drain, undrain`: the machines that train."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.server.options import Data, Json, server_at
from cli.terminal.printing import print_json, print_table, say
from domain.text import formats

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Its name or id.", show_default=False)]


CLOCK_AGREES_S = 1.0

nodes_app = typer.Typer(invoke_without_command=True)


@nodes_app.callback()
def nodes(context: typer.Context, data: Data = None, as_json: Json = False) -> None:
    """List nodes and what is free on them; `nodes remove NODE` takes one out."""
    if context.invoked_subcommand is not None:
        return
    found = server_at(data).get("/api/nodes")
    if as_json:
        print_json(found)
    elif not found:
        say("No node has joined. `rankzero up` brings one; others join by `rankzero worker --server URL`.")
    else:
        titles = ("name", "state", "address", "slots", "free", "devices", "versions", "runs", "last seen")
        print_table(titles, [row(node, time.time()) for node in found], right=frozenset({3, 4}))
        for node in found:
            for remark in remarks(node):
                say(f"{node['name']}: {remark}")


def drain(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Start nothing new on a node; what runs there goes on until it ends."""
    found = server_at(data).post(node_path(node, "drain"))
    runs = running(found)
    go = "goes on until its end" if len(runs) == 1 else "go on until their ends"
    left = f"; {formats.plural(len(runs), 'run')} there {go}: {' '.join(runs)}" if runs else ""
    told(found, as_json, f"Node {found['name']} is draining: nothing new starts there{left}.")


def undrain(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Give a drained node new runs again."""
    found = server_at(data).post(node_path(node, "undrain"))
    told(found, as_json, f"Node {found['name']} takes new runs again.")


@nodes_app.command()
def remove(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Take a node out of the cluster: its worker ends, what ran there stays readable."""
    found = server_at(data).delete(node_path(node))
    told(found, as_json, f"Node {found['name']} is removed; its worker ends, and its token is worth nothing.")


@nodes_app.command("end-unknown")
def end_unknown(
    node: NodeName,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """End what a node trains of a run that the store does not know, because an older copy was restored."""
    found = server_at(data).post(node_path(node, "end-unknown"), {"run": run})
    told(found, as_json, f"Node {found['name']} ends run {run}; what it wrote stays on the node.")


def node_path(node: str, *wish: str) -> str:
    """Where the dashboard takes a wish for a node."""
    return "/".join(["/api/nodes", quote(node, safe=""), *wish])


def told(node: dict[str, Any], as_json: bool, sentence: str) -> None:
    """The node as JSON, or what became of the wish in words."""
    if as_json:
        print_json(node)
    else:
        say(sentence)


def running(node: dict[str, Any]) -> list[str]:
    """Ids of the runs that have devices there."""
    return sorted({device["run_id"] for device in node["devices"] if device.get("run_id")})


def row(node: dict[str, Any], now: float) -> tuple[object, ...]:
    """A node's cells in the list."""
    devices: list[dict[str, Any]] = node["devices"]
    kinds: dict[str, int] = {}
    for device in devices:
        kinds[device["name"]] = kinds.get(device["name"], 0) + 1
    return (
        node["name"],
        node["state"]
        + (", draining" if node.get("draining") else "")
        + (", to upgrade" if node.get("upgrade") else ""),
        node["address"],
        node["slots"],
        node["free"],
        ", ".join(f"{count} x {name}" for name, count in kinds.items()),
        versions(node.get("info") or {}),
        " ".join(running(node)),
        formats.ago(node["last_seen"], now) if node.get("last_seen") else formats.UNKNOWN,
    )


def versions(info: dict[str, Any]) -> str:
    """torch 2.13.0, CUDA 12.6, NCCL 2.27.5, driver 550.54: of what trains there, and of the GPUs' driver."""
    interpreter = info.get("interpreter") or {}
    known = {
        "torch": interpreter.get("torch"),
        "CUDA": interpreter.get("cuda"),
        "NCCL": interpreter.get("nccl"),
        "driver": info.get("driver_version"),
    }
    return ", ".join(f"{name} {version}" for name, version in known.items() if version)


def remarks(node: dict[str, Any]) -> Iterator[str]:
    """What somebody should know before a run is given to it."""
    yield from (one["message"] for one in node.get("unknown") or ())
    info = node.get("info") or {}
    offset_s, error_s = info.get("clock_offset_s"), info.get("clock_error_s") or 0.0
    if offset_s is not None and abs(offset_s) - error_s > CLOCK_AGREES_S:
        yield f"its clock is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} the dashboard's."
    for text in (
        node.get("upgrade"),
        (node.get("load") or {}).get("notice"),
        (info.get("interpreter") or {}).get("problem"),
    ):
        if text:
            yield text
