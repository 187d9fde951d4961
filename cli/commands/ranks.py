"""`rankzero ranks`: every rank in figures, and with `--stacks` the Python line where each stands."""

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
    stacks: Annotated[bool, typer.Option("--stacks", help="Ask each rank where it stands now.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show each rank's steps, step time, wait for data and memory."""
    server = server_at(data)
    found = server.get(run_path(run, "ranks"))
    answers = ask(server, run) if stacks else None
    if as_json:
        print_json({"ranks": found} | ({"stacks": answers} if stacks else {}))
        return
    print_ranks(found)
    for node in (answers or {"nodes": []})["nodes"]:
        print_stacks(node)


def ask(server: ServerClient, run_id: str) -> dict[str, Any]:
    """The stacks of all ranks, as soon as every node has answered; what is there when none comes any more."""
    server.post(run_path(run_id, "stacks"))
    deadline = time.monotonic() + ANSWER_WITHIN_S
    while True:
        answers: dict[str, Any] = server.get(run_path(run_id, "stacks"))
        if answers["complete"]:
            return answers
        if time.monotonic() > deadline:
            if answers["nodes"]:
                return answers
            raise CommandFailed(f"No node of run {run_id} has answered within {ANSWER_WITHIN_S:.0f} s.")
        time.sleep(POLL_S)


def print_ranks(found: list[dict[str, Any]]) -> None:
    """One line a rank."""
    if not found:
        say("The probe has not seen any rank step yet.")
        return
    titles = ("rank", "node", "step", "step time", "waits for data", "memory")
    rows = [
        (
            each["rank"],
            each["node"],
            formats.count(each["step"]),
            formats.milliseconds(each["step_time_s"]),
            formats.milliseconds(each["data_wait_s"]),
            formats.size(each["peak_memory_bytes"]),
        )
        for each in found
    ]
    print_table(titles, rows, right=frozenset({0, 2, 3, 4, 5}))


def print_stacks(node: dict[str, Any]) -> None:
    """The stacks of one node's ranks, innermost line first."""
    for rank, frames in sorted(node["ranks"].items(), key=lambda each: int(each[0])):
        say(f"\nrank {rank} on {node['node']}:")
        for frame in frames:
            print(printable(f"  {formats.short_path(frame['file'])}:{frame['line']} in {frame['function']}"))
        if not frames:
            say("  could not be asked")
