"""`rankzero timeline`: the phases of a run's start on each node."""

from __future__ import annotations

from typing import Any

from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal.printing import print_json, print_table, say
from domain.launch.timeline import Phase, slow_sentence, slowest
from domain.text import formats


def timeline(run: RunId, data: Data = None, as_json: Json = False) -> None:
    """Show how long each phase of a run's start took on each node, from the request to the first step."""
    listed = server_at(data).get(run_path(run, "timeline"))
    if as_json:
        print_json(listed)
        return
    print_timeline([Phase(**phase) for phase in listed])


def print_timeline(phases: list[Phase]) -> None:
    """Print a line per phase, with a column for each node, and the slow node by name."""
    nodes = list(dict.fromkeys(phase.node for phase in phases))
    seconds: dict[str, dict[str | None, float]] = {}
    for phase in phases:
        seconds.setdefault(phase.phase, {})[phase.node] = phase.seconds
    rows: list[list[Any]] = [
        [name, *(formats.time_span(by_node.get(node)) for node in nodes)] for name, by_node in seconds.items()
    ]
    print_table(["phase", *(node or "no node yet" for node in nodes)], rows, right=frozenset(range(1, len(nodes) + 1)))
    for note in dict.fromkeys(f"{phase.node}: {phase.note}." for phase in phases if phase.note):
        say(note)
    if (slow := slowest(phases)) is not None:
        say(slow_sentence(slow))
