"""`rankzero collectives`: where each rank stands in its collectives, and where the ranks disagree."""

from __future__ import annotations

import math
from typing import Any

from cli.commands.ranks import ask_stacks
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal.printing import print_json, print_table, printable, say
from domain.messages import State
from domain.text import formats


def collectives(run: RunId, data: Data = None, as_json: Json = False) -> None:
    """Ask the ranks of a live run for their collectives and compare them; of an ended run show the last ones."""
    server = server_at(data)
    if not State(server.get(run_path(run))["state"]).is_terminal:
        ask_stacks(server, run)
    answer = server.get(run_path(run, "collectives"))
    if as_json:
        print_json(answer)
        return
    print_collectives(answer)


def print_collectives(answer: dict[str, Any]) -> None:
    """Print where the ranks disagree, and one line for each rank."""
    if answer["verdict"]:
        say(printable(answer["verdict"]["sentence"]))
    if not answer["ranks"]:
        say("No rank has reported a collective: it needs the probe, torch 2.8 or newer, and several ranks.")
        return
    rows = [(rank, *_cells(position)) for rank, position in answer["ranks"].items()]
    print_table(("rank", "number", "operation", "elements", "state"), rows, right=frozenset({0, 1, 3}))


def _cells(position: dict[str, Any]) -> tuple[str, str, str, str]:
    if position["operation"] is None:
        return formats.UNKNOWN, formats.UNKNOWN, formats.UNKNOWN, "did not answer"
    elements = sum(math.prod(size) for size in position["sizes"])
    state = "over" if position["retired"] else "waits"
    return str(position["sequence"]), printable(position["operation"]), formats.count(elements), state
