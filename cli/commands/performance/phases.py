"""`rankzero phases`: what each rank spends its steps on, and the rank that the others wait for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal.printing import print_json, print_table, say
from domain.performance.phases import PHASES
from domain.text import formats

TITLES = (
    "rank",
    "steps",
    "step",
    "data",
    "copy",
    "forward",
    "backward",
    "comm",
    "optimizer",
    "saving",
    "other",
)


LEAST_S = 1e-5
"""A shorter phase does not matter in a step."""


def phases(
    run: RunId,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank.")] = None,
    since: Annotated[int | None, typer.Option(min=0, help="Only steps after this one.")] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show what each rank spends its steps on (the mean over the steps), and the rank that the others wait for."""
    divided = server_at(data).get(run_path(run, "phases"), rank=rank, since=since)
    if as_json:
        print_json(divided)
        return
    if not divided["ranks"]:
        say("The probe has not seen two steps of any rank yet.")
        return
    rows = [row(number, means) for number, means in divided["ranks"].items()]
    print_table(TITLES, rows, right=frozenset(range(len(TITLES))))
    for slow in divided["slow"]:
        say(
            f"The others wait for rank {slow['rank']} on {slow['node']} ({slow['cause']}): "
            f"{slow['lost_share']:.0%} of every step is lost."
        )


def row(rank: str, means: dict[str, Any]) -> tuple[object, ...]:
    """Return a rank's cells."""
    cells = [_cell(means[name]) for name in ("step_s", *PHASES)]
    return (rank, formats.count(means["steps"]), *cells)


def _cell(seconds: float) -> str:
    return formats.milliseconds(seconds) if seconds >= LEAST_S else formats.UNKNOWN
