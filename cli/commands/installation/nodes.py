"""`rankzero nodes, drain, undrain`: the machines that train."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.commands.installation import node_installation
from cli.commands.installation.node_installation import NodeName
from cli.server.options import Data, Json, server_at
from cli.terminal import ask_or_tell, is_signed, print_json, print_outcome, print_table, say
from domain.health.holders import by_position
from domain.text import formats
from domain.text.formats import state_label

CLOCK_AGREES_S = 1.0
TEST_PAUSE_S = 0.5
nodes_app = typer.Typer(invoke_without_command=True)


@nodes_app.callback()
def nodes(context: typer.Context, data: Data = None, as_json: Json = False) -> None:
    """List nodes and their free slots; `nodes add HOST…` adds machines over `ssh`, `nodes remove NODE` removes one."""
    if context.invoked_subcommand is not None:
        return
    listed = server_at(data).get("/api/nodes")
    if as_json:
        print_json(listed)
    elif not listed:
        say("No node has joined. `rankzero up` starts one; `rankzero nodes add HOST…` adds machines over ssh.")
    else:
        titles = ("name", "state", "address", "slots", "free", "devices", "versions", "runs", "last seen")
        print_table(titles, [row(node, time.time()) for node in listed], right=frozenset({3, 4}))
        for node in listed:
            for remark in remarks(node):
                say(f"{node['name']}: {remark}")


def drain(
    node: NodeName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Start nothing new on a node; its runs continue to their end."""
    server = server_at(data)
    ask_or_tell(server.get(node_path(node, "drain"))["sentence"], yes)
    drained = server.post(node_path(node, "drain"))
    runs = running(drained)
    verb = formats.agree(len(runs), "continues to its end", "continue to their ends")
    continuing = f"; {formats.plural(len(runs), 'run')} there {verb}: {' '.join(runs)}" if runs else ""
    print_outcome(drained, as_json, f"Node {drained['name']} is draining: nothing new starts there{continuing}.")


def undrain(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Let a drained node receive new runs again."""
    undrained = server_at(data).post(node_path(node, "undrain"))
    print_outcome(undrained, as_json, f"Node {undrained['name']} accepts new runs again.")


@nodes_app.command()
def test(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Test a node's devices that no run has; if all results are right, its quarantine ends. Exit code 1 if not.

    Raises typer.Exit with code 1."""
    server = server_at(data)
    running_test = server.post(node_path(node, "test"))
    while running_test["ended_at"] is None:
        time.sleep(TEST_PAUSE_S)
        running_test = server.get(f"/api/tests/{running_test['id']}")
    tested = next(one for one in server.get("/api/nodes") if one["name"] == running_test["node"])
    if as_json:
        print_json(tested)
    else:
        print_table(("device", "part", "", "found"), list(_found(tested, running_test["results"])))
        say(f"Node {tested['name']}: {TESTED[running_test['verdict']]}")
        for remark in quarantines(tested):
            say(f"{tested['name']}: {remark}")
    if running_test["verdict"] != "passed":
        raise typer.Exit(1)


TESTED = {
    "passed": "all results are right, it accepts new runs.",
    "failed": "some results are not right.",
    "unknown": "not everything could be tested, so nothing changes.",
}


def _found(node: dict[str, Any], results: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the cells of each result."""
    positions = {device["id"]: f"GPU {position}" for position, device in enumerate(node["devices"])}
    for result in results:
        sign = {True: "ok", False: "RED", None: "–"}[result["is_right"]]
        yield positions.get(result["device"], "node"), result["part"], sign, result["text"]


@nodes_app.command()
def release(
    node: NodeName,
    device: Annotated[
        str | None, typer.Argument(metavar="DEVICE", help="Its id or position; by default all.", show_default=False)
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """End the quarantine of a node, or of one of its devices: new runs start there again."""
    released = server_at(data).post(node_path(node, "release"), {"device": device})
    subject = f"Device {device} of node {released['name']}" if device else f"Node {released['name']}"
    print_outcome(released, as_json, f"{subject} is out of quarantine and accepts new runs.")


@nodes_app.command("end-unknown")
def end_unknown(
    node: NodeName,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """End a run on a node that the store does not know because an older copy was restored."""
    updated = server_at(data).post(node_path(node, "end-unknown"), {"run": run})
    print_outcome(updated, as_json, f"Node {updated['name']} ends run {run}; its files stay on the node.")


for command in (node_installation.add, node_installation.upgrade, node_installation.doctor, node_installation.remove):
    nodes_app.command()(command)


def node_path(node: str, *action: str) -> str:
    """Return the API's path of a node, or of an action on it."""
    return "/".join(["/api/nodes", quote(node, safe=""), *action])


def running(node: dict[str, Any]) -> list[str]:
    """Return the ids of the runs that hold devices of the node; private ones have none."""
    runs = sorted({device["run_id"] for device in node["devices"] if device.get("run_id")})
    return [*runs, "private"] if any(device.get("private") for device in node["devices"]) else runs


def row(node: dict[str, Any], now: float) -> tuple[object, ...]:
    """Return a node's cells in the table."""
    devices: list[dict[str, Any]] = node["devices"]
    kinds: dict[str, int] = {}
    for device in devices:
        kinds[device["name"]] = kinds.get(device["name"], 0) + 1
    return (
        node["name"],
        state_label(node["state"])
        + (", draining" if node.get("draining") else "")
        + (f" by {node['drained_by']}" if is_signed([node.get("drained_by")]) else "")
        + (", in quarantine" if node.get("quarantine") else "")
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
    """Return the versions of a node's interpreter and driver: torch 2.13.0, CUDA 12.6, NCCL 2.27.5, driver 550.54."""
    interpreter = info.get("interpreter") or {}
    by_name = {
        "torch": interpreter.get("torch"),
        "CUDA": interpreter.get("cuda"),
        "NCCL": interpreter.get("nccl"),
        "driver": info.get("driver_version"),
    }
    return ", ".join(f"{name} {version}" for name, version in by_name.items() if version)


def remarks(node: dict[str, Any]) -> Iterator[str]:
    """Yield the node's problems: unknown runs, a wrong clock, a needed upgrade."""
    yield from (*quarantines(node), *node.get("left_out", ()))
    for position, holder in by_position((device["id"] for device in node["devices"]), node.get("load")):
        yield f"GPU {position} is used by {holder}"
    yield from (remark["message"] for remark in node.get("unknown") or ())
    info = node.get("info") or {}
    offset_s, error_s = info.get("clock_offset_s"), info.get("clock_error_s") or 0.0
    if offset_s is not None and abs(offset_s) - error_s > CLOCK_AGREES_S:
        yield f"its clock is {formats.clock_offset(offset_s)} the dashboard's."
    for text in (
        node.get("upgrade"),
        (node.get("load") or {}).get("notice"),
        (info.get("interpreter") or {}).get("problem"),
    ):
        if text:
            yield text


def quarantines(node: dict[str, Any]) -> Iterator[str]:
    """Yield why the node, or each of its devices in quarantine, is left out."""
    if whole := node.get("quarantine"):
        yield f"in quarantine: {whole['why']}"
        return
    for position, device in enumerate(node["devices"]):
        if quarantine := device.get("quarantine"):
            noun = "GPU" if device["kind"] == "cuda" else "slot"
            yield f"{noun} {position} is in quarantine: {quarantine['why']}"
