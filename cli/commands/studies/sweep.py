"""`rankzero sweep`: train one spec with different parameters, and show or stop such a sweep."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from cli.commands.launch import spec_of
from cli.commands.studies.shared import existing, wait_until_ended, with_options_of_launch
from cli.server import code, interpreter
from cli.server.options import server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_table, say, warn
from domain.sweeps import as_argument, parameters_of, params_in_words, saved_in_words
from domain.text import formats

PATH = "/api/sweeps"


class Search(StrEnum):
    """How the values of the next trial are chosen."""

    GRID = "grid"
    RANDOM = "random"
    TPE = "tpe"


class EarlyStop(StrEnum):
    """How trials that are not worth going on are found."""

    ASHA = "asha"
    MEDIAN = "median"
    NONE = "none"


class Goal(StrEnum):
    """Which values of the metric are better."""

    MIN = "min"
    MAX = "max"


Params = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=V,V,…|LOW..HIGH[:log]", help="Values or range of a parameter; repeatable."),
]
Metric = Annotated[str | None, typer.Option(help="Series whose last value is compared, e.g. val/loss.")]
GoalOption = Annotated[Goal, typer.Option(help="Whether low or high values of the metric are better.")]
SearchOption = Annotated[
    Search | None, typer.Option(help="Search for the values.", show_default="grid of lists, else tpe")
]
Trials = Annotated[int | None, typer.Option(min=1, help="Number of trials.", show_default="the grid, else 20")]
Parallel = Annotated[
    int | None, typer.Option(min=1, help="Most trials at a time.", show_default="as many as have devices")
]
MaxDeviceHours = Annotated[
    float | None,
    typer.Option(metavar="H", help="Device-hours of all trials at which the sweep ends.", show_default="none"),
]
EarlyStopOption = Annotated[
    EarlyStop, typer.Option(help="Stop trials that are behind: asha (successive halving) or median.")
]
FirstRung = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="STEP",
        help="Step of the metric at which trials are judged first.",
        show_default="a ninth of the first trial to succeed",
    ),
]
SearchSeed = Annotated[int, typer.Option(min=0, help="Seed of the search.")]


@with_options_of_launch(besides=("dry_run", "seeds"))
def sweep(
    context: typer.Context,
    param: Params = None,
    metric: Metric = None,
    goal: GoalOption = Goal.MIN,
    search: SearchOption = None,
    trials: Trials = None,
    parallel: Parallel = None,
    max_device_hours: MaxDeviceHours = None,
    early_stop: EarlyStopOption = EarlyStop.NONE,
    first_rung: FirstRung = None,
    search_seed: SearchSeed = 0,
    **options: Any,
) -> None:
    """Train a spec with different parameters and find the best: each trial is an ordinary run in the queue.

    `rankzero sweep show ID` shows a sweep, `rankzero sweep stop ID` ends one.

    Raises CommandFailed for a sweep that was waited for and did not succeed."""
    server, as_json = server_at(options["data"]), options["as_json"]
    if options["target"] in ("show", "stop"):
        show(existing(server, PATH, "sweep", options["target"], options["args"] or []), as_json)
        return
    plan: dict[str, Any] = {
        "parameters": parameters(param),
        "metric": _metric(metric),
        "goal": goal.value,
        "trials": trials,
    }
    plan |= {"search": search and search.value, "parallel": parallel, "seed": search_seed}
    plan |= {"max_device_hours": max_device_hours, "early_stop": early_stop.value, "first_rung": first_rung}
    spec = spec_of({"dry_run": False} | context.params, server.address.is_local)
    spec = code.with_code(server, interpreter.with_project_python(server, spec, is_launch=True))
    started = server.post(PATH, plan | {"spec": spec})
    if options["wait"]:
        warn(f"Sweep {started['id']} is {started['state']}: `rankzero sweep show {started['id']}` shows it.")
        started = wait_until_ended(server, PATH, "sweep", started["id"])
    show(started, as_json)
    if options["wait"] and started["state"] != "succeeded":
        raise CommandFailed(f"Sweep {started['id']} {started['state']}.")


def parameters(texts: list[str] | None) -> dict[str, Any]:
    """Return the parameters as the API takes them. Raises CommandFailed."""
    if not texts:
        raise CommandFailed("param: name what to try, for example --param lr=1e-4,3e-4,1e-3.", 2)
    try:
        return {name: one.model_dump(exclude_defaults=True) for name, one in parameters_of(texts).items()}
    except ValidationError as error:
        raise CommandFailed(f"param: {error.errors()[0]['msg'].removeprefix('Value error, ')}.", 2) from None
    except ValueError as error:
        raise CommandFailed(f"param: {error}.", 2) from None


def _metric(metric: str | None) -> str:
    if not metric:
        raise CommandFailed("metric: name the series to compare, for example --metric val/loss.", 2)
    return metric


def show(sweep: dict[str, Any], as_json: bool) -> None:
    """Print a sweep, for people or as JSON."""
    if as_json:
        print_json(sweep)
        return
    trials = sweep["trials"]
    say(
        f"Sweep {sweep['id']} of {sweep['target']}: {sweep['state']}, "
        f"{len(trials)} of {formats.plural(sweep['trials_planned'], 'trial')}."
    )
    names = list(trials[0]["params"]) if trials else []
    rungs = ("rung",) if sweep["early_stop"] != "none" else ()
    titles = ("trial", "run", *names, sweep["metric"], *rungs, "state")
    right = frozenset((0, *range(2, 3 + len(names) + len(rungs))))
    print_table(titles, [row(trial, bool(rungs)) for trial in trials], right=right)
    if sweep["message"]:
        say(sweep["message"])
    if saved := saved_in_words(sweep):
        say(f"{saved}.")
    if best := sweep["best"]:
        value, params = formats.number(best["value"]), params_in_words(best["params"])
        say(f"Best: {sweep['metric']} {value} with {params}, run {best['run']}.")


def row(trial: dict[str, Any], has_rungs: bool) -> tuple[object, ...]:
    """Return a trial's cells."""
    value = formats.number(trial["value"]) if trial["value"] is not None else ""
    message = trial["message"] or trial["state"]
    state = message if message.startswith(trial["state"]) else f"{trial['state']}: {message}"
    params = (as_argument(value) for value in trial["params"].values())
    rungs = (trial["rung"],) if has_rungs else ()
    return (trial["number"], trial["run"] or "", *params, value, *rungs, state)
