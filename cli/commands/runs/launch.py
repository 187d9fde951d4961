"""`rankzero launch`: build a RunSpec from the options and have the dashboard check and launch it."""

from __future__ import annotations

import math
import os
import re
import shlex
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from cli.commands.runs.spec_options import Args, DryRun, Seeds, Target, Wait, is_list, options_of_spec, with_options
from cli.server import code
from cli.server.client import ServerClient
from cli.server.following import wait_until_ended
from cli.server.options import Data, Json, id_of_run, pairs, server_at
from cli.terminal import CommandFailed, print_json, printable, say, warn
from dashboard.snapshots.git_address import is_git_address
from domain.catalogue import InputKind, Row
from domain.choices import RECIPES
from domain.spec import FIELDS, SLURM_FIELDS
from domain.sweeps import seeds_of
from domain.text import formats


@with_options(options_of_spec())
def launch(
    context: typer.Context,
    target: Target,
    args: Args = None,
    seeds: Seeds = None,
    wait: Wait = False,
    dry_run: DryRun = False,
    data: Data = None,
    as_json: Json = False,
    **fields: Any,
) -> None:
    """Launch a training: `rankzero launch train.py --gpus-per-node 2 -- --width 512`."""
    server = server_at(data)
    spec = spec_of(context.params | {"resume": resumed(context, fields["resume"])}, server.address.is_local)
    spec = code.with_project_python(server, spec, is_launch=not dry_run)
    carry_out(server, spec, seed_numbers(seeds, fields["seed"]), context.params)


def resumed(context: typer.Context, start: str | None) -> str | None:
    """Return RUN[:CHECKPOINT] with the run's id. Raises CommandFailed."""
    run, colon, checkpoint = (start or "").partition(":")
    return f"{id_of_run(context, run)}{colon}{checkpoint}" if run else start


def carry_out(server: ServerClient, spec: dict[str, Any], seeds: list[int], parameters: dict[str, Any]) -> None:
    """Launch the spec, with each of the seeds if there are any, or show what a launch would start."""
    code.tell_of_staged_paths(server, spec)
    wait, as_json = parameters["wait"], parameters["as_json"]
    if parameters["dry_run"]:
        show_preview(code.preview(server, spec | ({"seed": seeds[0]} if seeds else {})), as_json)
        return
    spec = code.with_code(server, spec)
    code.tell_what_is_not_passed(server, spec)
    if seeds:
        submit_seeds(server, spec, seeds, wait, as_json)
    else:
        submit(server, spec, wait, as_json)


def spec_of(parameters: dict[str, Any], is_local: bool) -> dict[str, Any]:
    """Build the RunSpec from the command line's values, by the names of `launch`'s parameters."""
    has_start = bool(parameters["entry"] or parameters["module"])
    links = pairs(parameters["links"], "links")
    options = {name: as_given(row, parameters[row.name]) for name, row in SLURM_FIELDS.items()}
    slurm = {name: value for name, value in options.items() if value is not None}
    read = {
        "nodes": node_count(parameters["nodes"]),
        "target": resolve_target(parameters["target"], has_start, is_local),
        "python": code.named_interpreter(parameters["python"]),
        "environment": code.named_environment(parameters["environment"], parameters["target"]),
        "workdir": parameters["workdir"] and absolute(parameters["workdir"]),
        "links": {key: absolute(path) for key, path in links.items()} or None,
        "stage": staged(parameters["stage"]) or None,
        "pool": parameters["pool"] or ("slurm" if slurm else None),
        "slurm": slurm or None,
    }
    others = {name: as_given(row, parameters[name]) for name, row in FIELDS.items() if row.section and name not in read}
    return {name: as_json_value(value) for name, value in (read | others).items() if value is not None}


def as_given(row: Row, value: Any) -> Any:
    """Return an option's value as the spec has it; None where it was not given. Raises CommandFailed."""
    if row.kind is InputKind.PAIRS:
        value = pairs(value, row.name)
    return value or None if is_list(row) or (row.kind is InputKind.FLAG and not row.default) else value


def resolve_target(target: str, has_start: bool, is_local: bool) -> str:
    """Return a recipe's name or a git address unchanged, else the target's absolute path.

    Raises CommandFailed for a path that does not exist on this machine, or a folder without an entry."""
    if target in RECIPES:
        return target
    if is_git_address(target):
        return target
    path = absolute(target)
    if not os.path.exists(path):  # noqa: PTH110  (a NUL or a very long name is just not there)
        if os.path.isabs(target) and not is_local:  # noqa: PTH117
            return target  # a path on the dashboard's machine, or in place on the nodes
        recipes = ", ".join(RECIPES)
        raise CommandFailed(f"target: {path} does not exist, and no recipe has that name (known: {recipes}).", 2)
    if Path(path).is_dir() and not has_start:
        raise CommandFailed(f"entry: {path} is a folder; name what to start in it with --entry or --module.", 2)
    return path


def absolute(path: str) -> str:
    """Return the absolute path without resolving links: an environment's `python` is a link."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100


def staged(items: list[str] | None) -> dict[str, str]:
    """Return SOURCE=NAME options by name, paths absolute; an address may have further equals signs.

    Raises CommandFailed."""
    stage = {}
    for item in items or []:
        source, equals, name = item.rpartition("=")
        if not equals or not source or not name or "/" in name:
            raise CommandFailed(f"stage: must be SOURCE=NAME, got {item!r}.", 2)
        is_here = source.startswith(("~", "./", "../")) or (":" not in source and os.path.exists(source))  # noqa: PTH110
        stage[name] = absolute(source) if is_here else source
    return stage


def as_json_value(value: Any) -> Any:
    """Return a value that JSON can carry: NaN as text, which the dashboard rejects with the field's rule."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def seed_numbers(text: str | None, seed: int | None) -> list[int]:
    """Return the seeds of `--seeds`, none without it. Raises CommandFailed."""
    if text is None:
        return []
    if seed is not None:
        raise CommandFailed("seeds: give --seed or --seeds, not both.", 2)
    try:
        return seeds_of(text)
    except ValueError as error:
        rule = "names a seed twice" if isinstance(error, ValidationError) else str(error)
        raise CommandFailed(f"seeds: {rule}.", 2) from None


def submit_seeds(server: ServerClient, spec: dict[str, Any], seeds: list[int], wait: bool, as_json: bool) -> None:
    """Launch a run for each seed and print the address that compares them; with `wait`, also their ends.

    Raises CommandFailed where `wait` is set and a run does not succeed."""
    launched = server.post("/api/runs/seeds", {"spec": spec, "seeds": seeds})
    for run in launched["runs"]:
        (warn if as_json else say)(f"Run {run['id']} ({run['name']}) is {run['state']}: {run['url']}")
    (warn if as_json else say)(f"Mean and spread of all: {launched['url']}")
    ends = [wait_until_ended(server, run["id"])["state"] for run in launched["runs"]] if wait else []
    for run, state in zip(launched["runs"], ends, strict=False):
        run["state"] = state
    if as_json:
        print_json(launched)
    failed = [run["id"] for run in launched["runs"] if wait and run["state"] != "succeeded"]
    if failed:
        raise CommandFailed(f"{len(failed)} of {len(seeds)} runs did not succeed: {', '.join(failed)}.")


def submit(server: ServerClient, spec: dict[str, Any], wait: bool, as_json: bool) -> None:
    """Launch the run and print its URL; with `wait`, also its end.

    Raises CommandFailed where `wait` is set and the run does not succeed."""
    run = server.post("/api/runs", spec)
    if as_json and not wait:
        print_json(run)
        return
    (warn if as_json else say)(f"Run {run['id']} ({run['name']}) is {run['state']}: {run['url']}")
    if wait:
        final = wait_until_ended(server, run["id"])
        if as_json:
            print_json(run | {name: final.get(name) for name in ("state", "reason", "message", "next_step")})
        if final["state"] != "succeeded":
            explanation = f": {final['message']}" if final.get("message") else "."
            if final.get("next_step"):
                explanation += f" {final['next_step']}" if explanation.endswith(".") else f". {final['next_step']}"
            raise CommandFailed(f"Run {run['id']} {final['state']}{explanation}")
        if not as_json:
            say(f"Run {run['id']} succeeded.")


def node_count(text: str | None) -> int | str | None:
    """Return N as a number, MIN:MAX unchanged. Raises CommandFailed for anything else."""
    if text is None or re.fullmatch(r"-?\d+:\d+", text):
        return text
    if not re.fullmatch(r"-?\d+", text):
        raise CommandFailed(f"nodes: must be N or MIN:MAX, for example 2 or 2:4, got {text!r}.", 2)
    return int(text)


def show_preview(preview: dict[str, Any], as_json: bool) -> None:
    """Print the preview of a run, for people or as JSON."""
    if as_json:
        print_json(preview)
        return
    rate, batch = preview["lr"], preview["global_batch_size"]
    say(f"world size         {preview['world_size']}")
    say(f"global batch size  {'set by the script' if batch is None else batch}")
    say(f"learning rate      {'set by the script' if rate is None else f'{rate:.12g}'}")
    if expected := preview.get("expected"):
        say(f"expected time      {expected['sentence']}")
    for size in preview.get("sizes", [])[:-1]:
        say(_size_line(size))
    if job := preview.get("job"):
        say(f"{printable(shlex.join(job['argv']))} <<'END'")
        print(printable(job["script"].rstrip()))
        say("END")
    for command in preview["commands"]:
        say(f"node {command['node_rank']}:")
        for key, value in sorted(command["env"].items()):
            print(f"  {key}={printable(shlex.quote(value))} \\")
        print(f"  {printable(shlex.join(command['argv']))}")
    if plan := preview.get("resume"):
        from cli.commands.runs.resume_plan import print_plan

        print_plan(plan)
    for warning in preview["warnings"]:
        warn(f"Note: {warning}")


def _size_line(size: dict[str, Any]) -> str:
    batch, rate = size["global_batch_size"], size["lr"]
    figures = [f"{size['world_size']} ranks", f"accumulation {size['accumulate']}"]
    figures += [f"global batch {batch}"] if batch is not None else []
    figures += [f"learning rate {rate:.12g}"] if rate is not None else []
    return f"on {formats.plural(size['nodes'], 'node')}{'':<8}  {', '.join(figures)}"
