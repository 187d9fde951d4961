"""`rankzero launch`: options become a RunSpec, and the dashboard judges it."""

from __future__ import annotations

import math
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from dashboard.client import CommandFailed, Server
from dashboard.commands.following import wait_until_ended
from dashboard.commands.options import Data, Json, server_at
from dashboard.commands.printing import print_json, printable, say, warn
from db.spec import Launcher, LrScaling, Precision, Strategy
from worker.launch import recipe_names

GIT_URL = re.compile(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:|.*\.git$", re.IGNORECASE)


def complete_target(incomplete: str) -> list[str]:
    """Recipes and files for the shell."""
    found = [str(path) + ("/" if path.is_dir() else "") for path in Path().glob(f"{incomplete}*")]
    return [name for name in recipe_names() if name.startswith(incomplete)] + found


def launch(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A recipe's name, a script, or a folder with --entry or --module.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS…]", help="The script's own.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the run.")] = None,
    project: Annotated[str | None, typer.Option(help="What it belongs to.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes.", show_default="1")] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", help="Processes per node.", show_default="all free slots"),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples per GPU and micro-step.")] = None,
    lr: Annotated[
        float | None, typer.Option("--lr", help="Learning rate on one GPU, before scaling.")
    ] = None,
    lr_scaling: Annotated[
        LrScaling | None,
        typer.Option(help="Multiply --lr by the world size or its root.", show_default="none"),
    ] = None,
    warmup_steps: Annotated[int | None, typer.Option(help="Steps of linear warm-up.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    precision: Annotated[Precision | None, typer.Option(help="Numbers.", show_default="fp32")] = None,
    accumulate: Annotated[
        int | None, typer.Option(help="Micro-steps whose gradients add up.", show_default="1")
    ] = None,
    strategy: Annotated[Strategy | None, typer.Option(help="Parallelism.", show_default="ddp")] = None,
    launcher: Annotated[
        Launcher | None, typer.Option(help="What starts ranks.", show_default="torchrun")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    python: Annotated[
        str | None, typer.Option(help="Interpreter that trains.", show_default="the node's")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Variable for the ranks; repeatable.")
    ] = None,
    entry: Annotated[str | None, typer.Option(metavar="FILE", help="File to start in a folder.")] = None,
    module: Annotated[str | None, typer.Option(help="Module to start in a folder.")] = None,
    ref: Annotated[str | None, typer.Option(help="Commit or branch of a git URL.", hidden=True)] = None,
    workdir: Annotated[
        str | None, typer.Option(metavar="PATH", help="Run in place instead of in a copy.")
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="Data folder to show in the working directory; repeatable."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN[:CHECKPOINT]", help="Start from another run's checkpoint.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end; exit 0 only when it succeeded.")
    ] = False,
    wait_for_nodes: Annotated[
        bool, typer.Option("--wait-for-nodes", help="Queue it even when no known nodes suffice.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be started.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Launch a training: `rankzero launch train.py --gpus-per-node 2 -- --width 512`."""
    server = server_at(data)
    if ref is not None:
        raise CommandFailed("ref: only a git URL has one, and those cannot be launched yet.", 2)
    chosen = {
        "name": name, "project": project, "nodes": nodes, "gpus_per_node": gpus_per_node,
        "batch_size": batch_size, "lr": lr, "lr_scaling": lr_scaling, "warmup_steps": warmup_steps,
        "epochs": epochs, "max_steps": max_steps, "precision": precision, "accumulate": accumulate,
        "strategy": strategy, "launcher": launcher, "seed": seed, "entry": entry, "module": module,
        "resume": resume, "args": args or None, "wait_for_nodes": wait_for_nodes or None,
        "target": resolve_target(target, bool(entry or module), server.address.is_local),
        "python": absolute(python) if python and os.sep in python else python,
        "workdir": workdir and absolute(workdir),
        "env": pairs(env, "env") or None,
        "links": {key: absolute(path) for key, path in pairs(link, "links").items()} or None,
    }  # fmt: skip
    spec = {key: as_json_value(value) for key, value in chosen.items() if value is not None}
    if dry_run:
        show_preview(server.post("/api/preview", spec), as_json)
    else:
        submit(server, spec, wait, as_json)


def resolve_target(target: str, has_start: bool, is_local: bool) -> str:
    """A recipe's name as it is, anything else as an absolute path that exists where we can look."""
    if target in recipe_names():
        return target
    if GIT_URL.match(target):
        raise CommandFailed(
            "target: git URLs cannot be launched yet; clone it and name the folder with --entry or --module.",
            2,
        )
    path = absolute(target)
    if not os.path.exists(path):  # noqa: PTH110  (a NUL or a very long name is just not there)
        if os.path.isabs(target) and not is_local:  # noqa: PTH117
            return target  # a path on the nodes, which are other machines
        known = ", ".join(recipe_names())
        raise CommandFailed(
            f"target: {path} does not exist, and no recipe has that name (known: {known}).", 2
        )
    if Path(path).is_dir() and not has_start:
        raise CommandFailed(
            f"entry: {path} is a folder; name what to start in it with --entry or --module.", 2
        )
    return path


def absolute(path: str) -> str:
    """As seen from here; links stay, because an environment's `python` is one."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100


def pairs(items: list[str] | None, field: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    found = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CommandFailed(f"{field}: must be NAME=VALUE, got {item!r}.", 2)
        found[key] = value
    return found


def as_json_value(value: Any) -> Any:
    """JSON has no NaN: the text of it is refused by the dashboard with the field's own rule."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def submit(server: Server, spec: dict[str, Any], wait: bool, as_json: bool) -> None:
    """Launch, and say where it can be seen; with `wait` also how it ended."""
    run = server.post("/api/runs", spec)
    if as_json and not wait:
        print_json(run)
        return
    (warn if as_json else say)(f"Run {run['id']} ({run['name']}) is {run['state']}: {run['url']}")
    if wait:
        ended = wait_until_ended(server, run["id"])
        if as_json:
            print_json(
                run | {"state": ended["state"], "reason": ended["reason"], "message": ended["message"]}
            )
        if ended["state"] != "succeeded":
            why = f": {ended['message']}" if ended.get("message") else "."
            raise CommandFailed(f"Run {run['id']} {ended['state']}{why}")
        if not as_json:
            say(f"Run {run['id']} succeeded.")


def show_preview(preview: dict[str, Any], as_json: bool) -> None:
    """What a run would be, for people or as JSON."""
    if as_json:
        print_json(preview)
        return
    rate, batch = preview["lr"], preview["global_batch_size"]
    say(f"world size         {preview['world_size']}")
    say(f"global batch size  {'as the script has it' if batch is None else batch}")
    say(f"learning rate      {'as the script has it' if rate is None else f'{rate:.12g}'}")
    for command in preview["commands"]:
        say(f"node {command['node_rank']}:")
        for key, value in sorted(command["env"].items()):
            print(f"  {key}={printable(shlex.quote(value))} \\")
        print(f"  {printable(shlex.join(command['argv']))}")
    for warning in preview["warnings"]:
        warn(f"Note: {warning}")
