"""`rankzero hardware`: the samples of the hardware on which a run trains."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands.output import last
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal.printing import print_json, print_table, say
from domain.text import formats


def hardware(
    run: RunId,
    node: Annotated[str | None, typer.Option(help="Only this node: its name, or its rank in the run.")] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show the last samples of each node's devices, host and ranks, with the device-hours and energy of the run."""
    server = server_at(data)
    series = server.get(run_path(run, "hardware"), node=node)
    if as_json:
        print_json(series)
        return
    used = server.get(run_path(run, "usage"))
    say(formats.usage_sentence(used["device_hours"], used["energy_j"]))
    if not series:
        say(f"No hardware of run {run} has been sampled yet.")
        return
    rows = [(name, formats.count(len(points)), *last(points)) for name, points in series.items()]
    print_table(("series", "samples", "last step", "last value"), rows, right=frozenset({1, 2, 3}))
