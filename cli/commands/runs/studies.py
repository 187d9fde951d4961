"""`rankzero sweep, scale`: submit many runs of one spec, and show or stop such a sweep or scaling study."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import ValidationError

from cli.commands.runs.launch import launch, spec_of
from cli.commands.runs.spec_options import with_options
from cli.server import code
from cli.server.client import ServerClient, ServerUnreachable
from cli.server.following import PATIENCE_S
from cli.server.options import server_at
from cli.terminal import CommandFailed, print_json, print_list, print_table, say, warn
from domain.choices import RUN_ID
from domain.lists import run_lists
from domain.scaling.plan import Mode
from domain.sweeps import (
    EarlyStop,
    Goal,
    Search,
    as_argument,
    hidden_in_words,
    parameters_of,
    params_in_words,
    saved_in_words,
)  # fmt: skip
from domain.text import formats

POLL_S = 2.0


def with_options_of_launch(besides: Collection[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `launch` beside its own, without those named."""

    of_launch = inspect.signature(launch).parameters.values()
    return with_options(p for p in of_launch if p.name not in besides)


class StudyCommand(NamedTuple):
    """What differs between `sweep` and `scale`."""

    command: str
    noun: str
    path: str
    show: Callable[[dict[str, Any], bool], None]
    """Prints one, for people or as JSON."""


def request(kind: StudyCommand, options: dict[str, Any], body: Callable[[ServerClient], dict[str, Any]]) -> None:
    """Start a study and show it, with `--wait` its end; or show or stop the one that the arguments name.

    Raises CommandFailed for a study that was waited for and did not succeed."""
    server, as_json = server_at(options["data"]), options["as_json"]
    if options["target"] in ("show", "stop"):
        kind.show(_existing(server, kind, options["target"], options["args"] or []), as_json)
        return
    study = server.post(kind.path, body(server))
    if options["wait"]:
        warn(f"{kind.noun} {study['id']} is {study['state']}: `rankzero {kind.command} show {study['id']}` shows it.")
        study = _wait_until_ended(server, kind, study["id"])
    kind.show(study, as_json)
    if options["wait"] and study["state"] != "succeeded":
        raise CommandFailed(f"{kind.noun} {study['id']} {study['state']}.")


def _existing(server: ServerClient, kind: StudyCommand, action: str, ids: list[str]) -> Any:
    """Return the document that `show` or `stop` names, after its stop was requested. Raises CommandFailed."""
    command, noun = kind.command, kind.noun.lower()
    if len(ids) != 1:
        raise CommandFailed(f"{command} {action} takes one {noun}: `rankzero {command} {action} ID`.", 2)
    if not RUN_ID.fullmatch(ids[0]):
        raise CommandFailed(f"There is no {noun} {ids[0]!r}.")
    document = f"{kind.path}/{ids[0]}"
    return server.post(f"{document}/stop") if action == "stop" else server.get(document)


def _wait_until_ended(server: ServerClient, kind: StudyCommand, study_id: str) -> dict[str, Any]:
    """Poll until it has ended and return it, retrying while the dashboard is away. Raises CommandFailed."""
    try:
        while True:
            try:
                document: dict[str, Any] = server.get(f"{kind.path}/{study_id}")
                if document["state"] not in ("running", "stopping"):
                    return document
                time.sleep(POLL_S)
            except ServerUnreachable:
                time.sleep(PATIENCE_S)
    except KeyboardInterrupt:
        sentence = f"It continues; `rankzero {kind.command} stop {study_id}` stops it."
        raise CommandFailed(sentence, 130) from None


def _with_code(server: ServerClient, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a command's options, with its code on the server."""
    spec = spec_of(fields, server.address.is_local)
    return code.with_code(server, code.with_project_python(server, spec, is_launch=True))


# `rankzero sweep`: train one spec with different parameters, and show or stop such a sweep.


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
    EarlyStop, typer.Option(help="Early stopping of trials that are behind: asha (successive halving) or median.")
]
FirstRung = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="STEP",
        help="Metric step at which trials are first judged.",
        show_default="a ninth of the first trial to succeed",
    ),
]
SearchSeed = Annotated[int, typer.Option(min=0, help="Seed of the search.")]


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


@with_options_of_launch(besides=("dry_run", "seeds"))
def sweep(
    context: typer.Context,
    param: Params = None,
    metric: Metric = None,
    goal: GoalOption = "min",
    search: SearchOption = None,
    trials: Trials = None,
    parallel: Parallel = None,
    max_device_hours: MaxDeviceHours = None,
    early_stop: EarlyStopOption = "none",
    first_rung: FirstRung = None,
    search_seed: SearchSeed = 0,
    **options: Any,
) -> None:
    """Train a spec with different parameters and find the best: each trial is an ordinary run in the queue.

    `rankzero sweep show ID` shows a sweep, `rankzero sweep stop ID` ends one."""

    def body(server: ServerClient) -> dict[str, Any]:
        plan: dict[str, Any] = {"parameters": parameters(param), "metric": _metric(metric), "goal": goal}
        plan |= {"trials": trials, "search": search, "parallel": parallel, "seed": search_seed}
        plan |= {"max_device_hours": max_device_hours, "early_stop": early_stop, "first_rung": first_rung}
        return plan | {"spec": _with_code(server, {"dry_run": False} | context.params)}

    request(StudyCommand("sweep", "Sweep", "/api/sweeps", show_sweep), options, body)


def _metric(metric: str | None) -> str:
    if not metric:
        raise CommandFailed("metric: name the series to compare, for example --metric val/loss.", 2)
    return metric


def show_sweep(sweep: dict[str, Any], as_json: bool) -> None:
    """Print a sweep, for people or as JSON."""
    if as_json:
        print_json(sweep)
        return
    trials, hidden = sweep["trials"], sweep.get("hidden", 0)
    say(
        f"Sweep {sweep['id']} of {sweep['target']}: {sweep['state']}, "
        f"{len(trials) + hidden} of {formats.plural(sweep['trials_planned'], 'trial')}."
    )
    names = list(trials[0]["params"]) if trials else []
    rungs = ("rung",) if sweep["early_stop"] != "none" else ()
    titles = ("trial", "run", *names, sweep["metric"], *rungs, "state")
    right = frozenset((0, *range(2, 3 + len(names) + len(rungs))))
    print_table(titles, [trial_row(trial, bool(rungs)) for trial in trials], right=right)
    for sentence in filter(None, (hidden_in_words(hidden), sweep["message"])):
        say(sentence)
    if saved := saved_in_words(sweep):
        say(f"{saved}.")
    if best := sweep["best"]:
        value, params = formats.number(best["value"]), params_in_words(best["params"])
        say(f"Best: {sweep['metric']} {value} with {params}, run {best['run']}.")


def trial_row(trial: dict[str, Any], has_rungs: bool) -> tuple[object, ...]:
    """Return a trial's cells."""
    value = formats.number(trial["value"]) if trial["value"] is not None else ""
    message = trial["message"] or trial["state"]
    state = message if message.startswith(trial["state"]) else f"{trial['state']}: {message}"
    params = (as_argument(value) for value in trial["params"].values())
    rungs = (trial["rung"],) if has_rungs else ()
    return (trial["number"], trial["run"] or "", *params, value, *rungs, state)


# `rankzero scale`: measure one spec on several numbers of devices, and show or stop such a study.

NOT_OF_A_STUDY = ("nodes", "resume", "max_steps", "seeds", "wait_for_nodes", "dry_run")
"""Options of `launch` that a study decides by itself."""


Gpus = Annotated[
    str | None,
    typer.Option(metavar="N,N,…", help="Numbers of devices.", show_default="1,2,4,8 as available"),
]
GlobalBatches = Annotated[
    str | None,
    typer.Option(
        metavar="B,B,…",
        help="Global batches to compare, each on every number of devices.",
        show_default="one",
    ),
]
ModeOption = Annotated[
    Mode | None,
    typer.Option(
        help="weak: keep the batch of each rank; strong: keep the global batch.",
        show_default="weak; strong with --global-batches",
    ),
]
Steps = Annotated[int, typer.Option(min=1, help="Measured steps of each run, at the largest global batch.")]


@with_options_of_launch(besides=NOT_OF_A_STUDY)
def scale(
    context: typer.Context,
    gpus: Gpus = None,
    global_batches: GlobalBatches = None,
    mode: ModeOption = None,
    steps: Steps = 100,
    **options: Any,
) -> None:
    """Train the same spec on 1, 2, 4, … devices, one run after another, and say what more devices bring.

    `rankzero scale show ID` shows a study, `rankzero scale stop ID` ends one."""

    def body(server: ServerClient) -> dict[str, Any]:
        spec = _with_code(server, dict.fromkeys(NOT_OF_A_STUDY) | context.params)
        numbers = {"gpus": numbers_in(gpus, "gpus"), "global_batches": numbers_in(global_batches, "global_batches")}
        return numbers | {"spec": spec, "mode": mode, "steps": steps}

    request(StudyCommand("scale", "Study", "/api/scaling-studies", show_study), options, body)


def numbers_in(text: str | None, field: str) -> list[int] | None:
    """Return the numbers of an option. Raises CommandFailed for anything else."""
    if text is None:
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise CommandFailed(f"{field}: must be numbers, for example 1,2,4, got {text!r}.", 2) from None


def show_study(study: dict[str, Any], as_json: bool) -> None:
    """Print a study, for people or as JSON."""
    if as_json:
        print_json(study)
        return
    say(f"Study {study['id']} of {study['target']}: {study['state']}, {study['mode']} scaling.")
    batches = study["batches"]
    print_list(run_lists.scaling_points(bool(batches)), study["points"])
    if batches:
        say("")
        _show_batches(batches)
    for sentence in filter(None, (study.get("message"), study["verdict"])):
        say(sentence)


def _show_batches(batches: dict[str, Any]) -> None:
    """Print the global batches beside each other."""
    loss = f"{batches['loss']} after {formats.number(batches['samples'])} samples" if batches["loss"] else "loss"
    titles = ("batch", f"learning rate ({batches['lr_rule']})", loss, "higher by")
    rows = [
        (
            one["global_batch_size"],
            formats.learning_rate(one["lr"]),
            formats.number(one["loss"]),
            f"{one['loss_change']:.0%}" if isinstance(one["loss_change"], float) else "",
        )
        for one in batches["batches"]
    ]
    print_table(titles, rows, right=frozenset(range(4)))
