"""`rankzero ranks`: per-rank performance, and with `--stacks` every rank's stack trace."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from cli.server.client import ServerClient
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_table, printable, say
from domain.text import formats

ANSWER_WITHIN_S = 20.0
POLL_S = 0.3


def ranks(
    run: RunId,
    stacks: Annotated[bool, typer.Option("--stacks", help="Ask each rank for its stack trace.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show each rank's step, step time, time waiting for data and memory."""
    server = server_at(data)
    listed = server.get(run_path(run, "ranks"))
    answers = ask_stacks(server, run) if stacks else None
    if as_json:
        print_json({"ranks": listed} | ({"stacks": answers} if stacks else {}))
        return
    print_ranks(listed)
    for node in (answers or {"nodes": []})["nodes"]:
        print_stacks(node)


def ask_stacks(server: ServerClient, run_id: str) -> dict[str, Any]:
    """Request the stacks of all ranks and return them once every node has answered, or time is up.

    Raises CommandFailed where no node answers in time."""
    server.post(run_path(run_id, "stacks"))
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while True:
        stacks: dict[str, Any] = server.get(run_path(run_id, "stacks"))
        if stacks["complete"]:
            return stacks
        if time.monotonic() > deadline:
            if stacks["nodes"]:
                return stacks
            raise CommandFailed(f"No node of run {run_id} has answered within {ANSWER_WITHIN_S:.0f} s.")
        time.sleep(POLL_S)


def print_ranks(rows_by_rank: list[dict[str, Any]]) -> None:
    """Print one line per rank."""
    if not rows_by_rank:
        say("The probe has not seen any rank step yet.")
        return
    titles = ("rank", "node", "step", "step time", "waits for data", "memory")
    rows = [
        (
            rank["rank"],
            rank["node"],
            formats.count(rank["step"]),
            formats.milliseconds(rank["step_time_s"]),
            formats.milliseconds(rank["data_wait_s"]),
            formats.size(rank["peak_memory_bytes"]),
        )
        for rank in rows_by_rank
    ]
    print_table(titles, rows, right=frozenset({0, 2, 3, 4, 5}))


def print_stacks(node: dict[str, Any]) -> None:
    """Print the stacks of one node's ranks, innermost line first."""
    for rank, frames in sorted(node["ranks"].items(), key=lambda item: int(item[0])):
        say(f"\nrank {rank} on {node['node']}:")
        for frame in frames:
            print(printable(f"  {formats.short_path(frame['file'])}:{frame['line']} in {frame['function']}"))
        if not frames:
            say("  could not be asked")
