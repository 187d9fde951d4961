"""`rankzero scale`: measure one spec on several numbers of devices, and show or stop such a study."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from cli.commands.launch import spec_of
from cli.commands.studies.shared import existing, wait_until_ended, with_options_of_launch
from cli.server import code, interpreter
from cli.server.options import server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_table, say, warn
from domain.text import formats

PATH = "/api/scaling-studies"
NOT_OF_A_STUDY = ("nodes", "resume", "max_steps", "seeds", "wait_for_nodes", "dry_run")
"""Options of `launch` that a study decides by itself."""
TITLES = ("devices", "nodes", "strategy", "run", "samples/s", "speed-up", "efficiency", "spread", "limit")


class Mode(StrEnum):
    """What stays the same on more devices: the batch of each rank, or the global batch."""

    WEAK = "weak"
    STRONG = "strong"


Gpus = Annotated[
    str | None,
    typer.Option(metavar="N,N,…", help="Numbers of devices.", show_default="1,2,4,8 as far as they exist"),
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
        help="weak: the batch of each rank stays; strong: the global batch stays.",
        show_default="weak; strong with --global-batches",
    ),
]
Steps = Annotated[int, typer.Option(min=1, help="Steps of each run that are measured; of the largest global batch.")]


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
    server, as_json = server_at(options["data"]), options["as_json"]
    if options["target"] in ("show", "stop"):
        show(existing(server, PATH, "scale", options["target"], options["args"] or []), as_json)
        return
    spec = spec_of(dict.fromkeys(NOT_OF_A_STUDY) | context.params, server.address.is_local)
    spec = code.with_code(server, interpreter.with_project_python(server, spec, is_launch=True))
    asked = {"gpus": numbers(gpus, "gpus"), "global_batches": numbers(global_batches, "global_batches")}
    study = server.post(PATH, asked | {"spec": spec, "mode": mode and mode.value, "steps": steps})
    if not options["wait"]:
        show(study, as_json)
        return
    warn(f"Study {study['id']} is {study['state']}: `rankzero scale show {study['id']}` shows it.")
    _show_end(wait_until_ended(server, PATH, "scale", study["id"]), as_json)


def _show_end(study: dict[str, Any], as_json: bool) -> None:
    """Print an ended study. Raises CommandFailed if it did not succeed."""
    show(study, as_json)
    if study["state"] != "succeeded":
        raise CommandFailed(f"Study {study['id']} {study['state']}.")


def numbers(text: str | None, field: str) -> list[int] | None:
    """Return the numbers of an option. Raises CommandFailed for anything else."""
    if text is None:
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise CommandFailed(f"{field}: must be numbers, for example 1,2,4, got {text!r}.", 2) from None


def show(study: dict[str, Any], as_json: bool) -> None:
    """Print a study, for people or as JSON."""
    if as_json:
        print_json(study)
        return
    say(f"Study {study['id']} of {study['target']}: {study['state']}, {study['mode']} scaling.")
    batches = study["batches"]
    titles = ("batch", *TITLES) if batches else TITLES
    right = frozenset(titles.index(title) for title in titles if title not in ("strategy", "run", "limit"))
    print_table(titles, [row(point, bool(batches)) for point in study["points"]], right=right)
    if batches:
        say("")
        _show_batches(batches)
    if study["verdict"]:
        say(study["verdict"])


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


def row(point: dict[str, Any], has_batches: bool = False) -> tuple[object, ...]:
    """Return a point's cells."""
    shares = (f"{share:.0%}" if share is not None else "" for share in (point["efficiency"], point["spread"]))
    return (
        *([point["global_batch_size"]] if has_batches else []),
        point["devices"],
        point["nodes"],
        point["strategy"],
        point["run"] or "",
        formats.number(point["samples_per_s"]) if point["samples_per_s"] is not None else "",
        f"{point['speedup']:.2f}x" if point["speedup"] is not None else "",
        *shares,
        point["limit"] or "",
    )
