"""`rankzero preflight`: whether nodes can train together, as a matrix."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from cli.server.options import Data, Json, server_at
from cli.terminal.printing import print_json, print_table, say

PAUSE_S = 0.2
SIGNS = {"ok": "ok", "failed": "RED", "warning": "look", "waiting": "…", "skipped": "–"}


def preflight(
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="NODE", help="Names or ids.", show_default="all alive")
    ] = None,
    bandwidth: Annotated[
        bool, typer.Option("--bandwidth", help="Measure an all-reduce between each two nodes, too.")
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Ask nodes whether they can train together; exit code 1 when a cell is red."""
    server = server_at(data)
    found = server.post("/api/preflight", {"nodes": nodes or None, "bandwidth": bandwidth})
    while found["ended_at"] is None:
        time.sleep(PAUSE_S)
        found = server.get(f"/api/preflight/{found['id']}")
    if as_json:
        print_json(found)
    else:
        print_matrix(found)
    if any(cell["state"] == "failed" for cell in found["cells"]):
        raise typer.Exit(1)


def print_matrix(found: dict[str, Any]) -> None:
    """A row for each node and what was looked at; below it every red cell with its mend."""
    cells = found["cells"]
    print_table(
        ("check", "node", "", "found"),
        [(cell["row"], _place(cell), SIGNS[cell["state"]], cell["value"]) for cell in cells],
    )
    troubles = [cell for cell in cells if cell["state"] in ("failed", "warning")]
    for cell in troubles:
        say(f"{SIGNS[cell['state']]:<4}  {cell['row']}, {_place(cell)}: {cell['value']}. {cell['mend']}")
    if not troubles:
        count = len(found["nodes"])
        say(f"All is well on {count} node{'s' * (count != 1)}.")


def _place(cell: dict[str, Any]) -> str:
    return str(cell["node"]) + (f" → {cell['peer']}" if cell["peer"] else "")
