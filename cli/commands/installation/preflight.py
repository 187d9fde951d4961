"""`rankzero preflight`: whether nodes can train together, as a matrix."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from cli.server.client import ServerClient
from cli.server.options import Data, Json, server_at
from cli.terminal import print_json, print_table, say
from domain.text import formats

PAUSE_S = 0.2
SIGNS = {"ok": "ok", "failed": "RED", "warning": "look", "waiting": "…", "skipped": "–"}


def preflight(
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="NODE", help="Names or ids.", show_default="all online")
    ] = None,
    bandwidth: Annotated[
        bool, typer.Option("--bandwidth", help="Also measure an all-reduce between each pair of nodes.")
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Check whether nodes can train together; exit code 1 if a cell is red.

    Raises typer.Exit with code 1 for a failed cell."""
    check = checked(server_at(data), nodes, bandwidth)
    if as_json:
        print_json(check)
    else:
        print_matrix(check)
    if any(cell["state"] == "failed" for cell in check["cells"]):
        raise typer.Exit(1)


def checked(server: ServerClient, nodes: list[str] | None, bandwidth: bool = False) -> dict[str, Any]:
    """Run a preflight of these nodes (None: all online), and return it when it has ended. Raises CommandFailed."""
    check: dict[str, Any] = server.post("/api/preflight", {"nodes": nodes or None, "bandwidth": bandwidth})
    while check["ended_at"] is None:
        time.sleep(PAUSE_S)
        check = server.get(f"/api/preflight/{check['id']}")
    return check


def print_matrix(check: dict[str, Any]) -> None:
    """Print a row per check and node, then every failed or doubtful cell with its fix."""
    cells = check["cells"]
    print_table(
        ("check", "node", "", "result"),
        [(cell["row"], _nodes_of(cell), SIGNS[cell["state"]], cell["value"]) for cell in cells],
    )
    problems = [cell for cell in cells if cell["state"] in ("failed", "warning")]
    for cell in problems:
        say(f"{SIGNS[cell['state']]:<4}  {cell['row']}, {_nodes_of(cell)}: {cell['value']}. {cell['fix']}")
    if not problems:
        say(f"All checks passed on {formats.plural(len(check['nodes']), 'node')}.")


def _nodes_of(cell: dict[str, Any]) -> str:
    return str(cell["node"]) + (f" → {cell['peer']}" if cell["peer"] else "")
