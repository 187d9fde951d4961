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
from cli.terminal import ask_or_tell, print_json, print_list, print_outcome, print_table, say
from domain.lists import node_lists
from domain.text import formats

TEST_PAUSE_S = 0.5
nodes_app = typer.Typer(invoke_without_command=True)


@nodes_app.callback()
def nodes(context: typer.Context, data: Data = None, as_json: Json = False) -> None:
    """List nodes and their free slots; `nodes add HOST…` adds machines over `ssh`, `nodes remove NODE` removes one."""
    if context.invoked_subcommand is not None:
        return
    listed = server_at(data).get("/api/nodes")
    none = "No node has joined. `rankzero up` starts one; `rankzero nodes add HOST…` adds machines over ssh."
    print_list(node_lists.nodes(time.time()), listed, as_json, none)
    for node in () if as_json else listed:
        for remark in (*node_lists.notices(node), *node_lists.other_users(node)):
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
    runs = node_lists.runs_on(drained)
    verb = formats.agree(len(runs), "continues to its end", "continue to their ends")
    continuing = f"; {formats.plural(len(runs), 'run')} there {verb}: {' '.join(runs)}" if runs else ""
    print_outcome(drained, as_json, f"Node {drained['name']} is draining: nothing new starts there{continuing}.")


def undrain(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Let a drained node receive new runs again."""
    undrained = server_at(data).post(node_path(node, "undrain"))
    print_outcome(undrained, as_json, f"Node {undrained['name']} accepts new runs again.")


@nodes_app.command()
def test(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Test a node's devices without a run; its quarantine ends if all results are right. Exit code 1 if not.

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
        for remark in node_lists.quarantines(tested):
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
