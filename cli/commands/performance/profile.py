"""`rankzero profile`: record the same steps of chosen ranks, and show where they spent their time."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from cli.server.client import ServerClient
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_table, printable, say
from domain.profiles.records import MAX_RANKS, MAX_STEPS, Operator, Overview
from domain.profiles.views import OPERATOR_TITLES, ProfileState, ProfileView, operator_rows, table_of, troubles
from domain.text import formats

POLL_S = 0.5
TOP = 8


def profile(
    run: RunId,
    steps: Annotated[int, typer.Option(min=1, max=MAX_STEPS, help="Number of steps to record.")] = 10,
    ranks: Annotated[
        str | None,
        typer.Option(help="Ranks to record, separated by commas.", show_default=f"the first {MAX_RANKS}"),
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Record torch's profiler in ranks of a live run and show the overview. The script needs no change.

    Raises CommandFailed where no rank has a trace."""
    server = server_at(data)
    requested = server.post(run_path(run, "profiles"), {"steps": steps, "ranks": _numbers(ranks)})
    if not as_json:
        say(f"Recording steps {requested['first_step']} to {requested['first_step'] + steps - 1} …")
        say(printable(requested["cost"]))
    document = _wait(server, run, requested["id"])
    view = TypeAdapter(ProfileView).validate_python(document)
    if as_json:
        print_json(document)
    else:
        print_profile(view)
    if view.state != ProfileState.RECORDED:
        raise CommandFailed(f"Profile {view.id}: {view.state}. {' '.join(troubles(view))}")


def print_profile(view: ProfileView) -> None:
    """Print the overview of each rank side by side, its top operators, and what follows from them."""
    for sentence in troubles(view):
        say(printable(sentence))
    shown = [outcome for outcome in view.outcomes if outcome.overview]
    if not shown:
        return
    titles, rows = table_of(shown)
    print_table(titles, rows, right=frozenset(range(1, len(titles))))
    for outcome in shown:
        if outcome.overview:
            _print_rank(outcome.rank, outcome.overview)
    for file in view.files:
        say(f"rank {file.rank}: {formats.size(file.size_bytes)} trace at {file.path}")


def _print_rank(rank: int, overview: Overview) -> None:
    """Print the top kernels and operators of one rank, and what follows."""
    for kind, operators in (
        ("kernel", overview.device.kernels if overview.device else []),
        ("operator", overview.operators),
    ):
        if operators:
            _print_operators(rank, kind, operators[:TOP], overview)
    for sentence in overview.advice:
        say(printable(f"rank {rank}: {sentence}"))


def _print_operators(rank: int, kind: str, operators: list[Operator], overview: Overview) -> None:
    titles = (f"{kind} of rank {rank}", *OPERATOR_TITLES[1:])
    rows = [[printable(cell) for cell in row] for row in operator_rows(operators, overview)]
    print_table(titles, rows, right=frozenset({1, 2, 3, 4}))


def _wait(server: ServerClient, run_id: str, profile_id: str) -> dict[str, Any]:
    """Return the profile once every rank has answered or time is up, which the server decides."""
    while True:
        document: dict[str, Any] = server.get(run_path(run_id, "profiles", profile_id))
        if document["state"] != ProfileState.RECORDING:
            return document
        time.sleep(POLL_S)


def _numbers(ranks: str | None) -> list[int]:
    """Return the ranks that an option names. Raises CommandFailed."""
    try:
        return [int(rank) for rank in ranks.split(",")] if ranks else []
    except ValueError:
        raise CommandFailed(f"--ranks must be numbers separated by commas, got {ranks!r}.", 2) from None
