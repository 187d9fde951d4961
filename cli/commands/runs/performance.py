"""`rankzero ranks, phases, collectives, timeline, hardware, profile`: what a run spends its time on and waits for."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from cli.commands.runs.output import series_columns
from cli.server.client import ServerClient
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal import CommandFailed, print_json, print_list, print_table, printable, say
from domain.assignments import MAX_RANKS, MAX_STEPS
from domain.launch.timeline import Phase, slow_sentence, slowest
from domain.lists import run_lists
from domain.messages import State
from domain.performance.phases import PHASES, in_words
from domain.profiles.records import Overview
from domain.profiles.views import ProfileState, ProfileView, operators, table_of, troubles
from domain.text import formats

ANSWER_WITHIN_S = 20.0
STACKS_POLL_S = 0.3


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
    print_list(run_lists.RANKS, listed, empty="The probe has not seen any rank step yet.")
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
        time.sleep(STACKS_POLL_S)


def print_stacks(node: dict[str, Any]) -> None:
    """Print the stacks of one node's ranks, innermost line first."""
    for rank, frames in sorted(node["ranks"].items(), key=lambda item: int(item[0])):
        say("")
        say(f"rank {rank} on {node['node']}:")
        for frame in frames:
            print(printable(f"  {formats.short_path(frame['file'])}:{frame['line']} in {frame['function']}"))
        if not frames:
            say("  could not be asked")


# `rankzero phases`: what each rank spends its steps on, and the rank that the others wait for.

PHASE_TITLES = ("rank", "steps", "step", "data", "copy", "forward", "backward", "comm", "optimizer", "saving", "other")


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
    rows = [
        (number, formats.count(means["steps"]), *(in_words(means[name]) for name in ("step_s", *PHASES)))
        for number, means in divided["ranks"].items()
    ]
    print_table(PHASE_TITLES, rows, right=frozenset(range(len(PHASE_TITLES))))
    for slow in divided["slow"]:
        say(
            f"The others wait for rank {slow['rank']} on {slow['node']} ({slow['cause']}): "
            f"{slow['lost_share']:.0%} of every step is lost."
        )


# `rankzero collectives`: where each rank stands in its collectives, and where the ranks disagree.


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
    rows = [(rank, *_position_cells(position)) for rank, position in answer["ranks"].items()]
    print_table(("rank", "number", "operation", "elements", "state"), rows, right=frozenset({0, 1, 3}))


def _position_cells(position: dict[str, Any]) -> tuple[str, str, str, str]:
    if position["operation"] is None:
        return formats.UNKNOWN, formats.UNKNOWN, formats.UNKNOWN, "did not answer"
    elements = sum(math.prod(size) for size in position["sizes"])
    state = "over" if position["retired"] else "waits"
    return str(position["sequence"]), printable(position["operation"]), formats.count(elements), state


# `rankzero timeline`: the phases of a run's start on each node.


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


# `rankzero hardware`: the samples of the hardware on which a run trains.


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
    print_list(series_columns("samples"), list(series.items()))


# `rankzero profile`: record the same steps of chosen ranks, and show where they spent their time.

PROFILE_POLL_S = 0.5
TOP_OPERATORS = 8


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
    print_list(*table_of(shown))
    for outcome in shown:
        if outcome.overview:
            _print_rank(outcome.rank, outcome.overview)
    for file in view.files:
        say(f"rank {file.rank}: {formats.size(file.size_bytes)} trace at {file.path}")


def _print_rank(rank: int, overview: Overview) -> None:
    """Print the top kernels and operators of one rank, and what follows."""
    kernels = overview.device.kernels if overview.device else []
    for kind, listed in (("kernel", kernels), ("operator", overview.operators)):
        if listed:
            print_list(operators(f"{kind} of rank {rank}", overview), listed[:TOP_OPERATORS])
    for sentence in overview.advice:
        say(printable(f"rank {rank}: {sentence}"))


def _wait(server: ServerClient, run_id: str, profile_id: str) -> dict[str, Any]:
    """Return the profile once every rank has answered or time is up, which the server decides."""
    while True:
        document: dict[str, Any] = server.get(run_path(run_id, "profiles", profile_id))
        if document["state"] != ProfileState.RECORDING:
            return document
        time.sleep(PROFILE_POLL_S)


def _numbers(ranks: str | None) -> list[int]:
    """Return the ranks that an option names. Raises CommandFailed."""
    try:
        return [int(rank) for rank in ranks.split(",")] if ranks else []
    except ValueError:
        raise CommandFailed(f"--ranks must be numbers separated by commas, got {ranks!r}.", 2) from None
