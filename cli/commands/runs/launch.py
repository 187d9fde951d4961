"""`rankzero launch`: build a RunSpec from the options and have the dashboard check and launch it."""

from __future__ import annotations

import math
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from cli.server import code
from cli.server.client import ServerClient
from cli.server.following import wait_until_ended
from cli.server.options import Data, Json, id_of_run, pairs, server_at
from cli.terminal import CommandFailed, print_json, printable, say, warn
from dashboard.snapshots.git_address import is_git_address
from domain.choices import (
    RECIPES,
    Launcher,
    LrOnResize,
    LrScaling,
    OnHang,
    OnLostNode,
    Pool,
    Precision,
    Strategy,
)
from domain.sweeps import seeds_of
from domain.text import formats

AS_GIVEN = (
    "name project gpus_per_node batch_size lr lr_scaling warmup_steps epochs max_steps precision priority "
    "accumulate strategy launcher seed entry module ref resume probe printed_pattern hang_after_s on_hang stop_grace_s "
    "max_restarts min_nodes on_lost_node lr_on_resize torchrun_restarts"
).split()


def launch(
    context: typer.Context,
    target: Target,
    args: Args = None,
    name: Name = None,
    project: Project = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    batch_size: BatchSize = None,
    lr: Lr = None,
    lr_scaling: Scaling = None,
    warmup_steps: WarmupSteps = None,
    epochs: Epochs = None,
    max_steps: MaxSteps = None,
    precision: Numbers = None,
    accumulate: Accumulate = None,
    strategy: Parallelism = None,
    launcher: Starter = None,
    seed: Seed = None,
    seeds: Seeds = None,
    python: Python = None,
    environment: Environment = None,
    env: Env = None,
    secret: Secrets = None,
    entry: Entry = None,
    module: Module = None,
    ref: Ref = None,
    workdir: Workdir = None,
    link: Link = None,
    stage: Stage = None,
    resume: Resume = None,
    probe: Probe = None,
    printed_pattern: PrintedPattern = None,
    hang_after_s: HangAfter = None,
    on_hang: OnHanging = None,
    max_restarts: MaxRestarts = None,
    min_nodes: MinNodes = None,
    on_lost_node: OnLost = None,
    lr_on_resize: Resized = None,
    torchrun_restarts: TorchrunRestarts = None,
    stop_grace_s: StopGrace = None,
    priority: Priority = None,
    label: Labels = None,
    on: OnNodes = None,
    pool: PoolOf = None,
    partition: Partition = None,
    account: Account = None,
    time_limit: TimeLimit = None,
    sbatch_option: SbatchOptions = None,
    wait: Wait = False,
    wait_for_nodes: WaitForNodes = False,
    dry_run: DryRun = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Launch a training: `rankzero launch train.py --gpus-per-node 2 -- --width 512`."""
    server = server_at(data)
    spec = spec_of(context.params | {"resume": resumed(context, resume)}, server.address.is_local)
    spec = code.with_project_python(server, spec, is_launch=not dry_run)
    carry_out(server, spec, seed_numbers(seeds, seed), context.params)


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
    workdir = parameters["workdir"]
    links = pairs(parameters["link"], "links")
    spec = {name: parameters[name] for name in AS_GIVEN} | {
        "nodes": node_count(parameters["nodes"]),
        "target": resolve_target(parameters["target"], has_start, is_local),
        "args": parameters["args"] or None,
        "wait_for_nodes": parameters["wait_for_nodes"] or None,
        "labels": pairs(parameters["label"], "labels") or None,
        "on_nodes": parameters["on"] or None,
        "python": code.named_interpreter(parameters["python"]),
        "environment": code.named_environment(parameters["environment"], parameters["target"]),
        "workdir": absolute(workdir) if workdir else workdir,
        "env": pairs(parameters["env"], "env") or None,
        "secrets": parameters["secret"] or None,
        "links": {key: absolute(path) for key, path in links.items()} or None,
        "stage": staged(parameters["stage"]) or None,
    }
    spec |= slurm_fields(parameters)
    return {name: as_json_value(value) for name, value in spec.items() if value is not None}


def slurm_fields(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the spec's `pool` and `slurm` fields; any Slurm option selects the pool slurm."""
    slurm = {name: parameters[name] for name in ("partition", "account", "time_limit") if parameters[name] is not None}
    slurm |= {"options": parameters["sbatch_option"]} if parameters["sbatch_option"] else {}
    return {"pool": parameters["pool"] or ("slurm" if slurm else None), "slurm": slurm or None}


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
    for warning in preview["warnings"]:
        warn(f"Note: {warning}")


def _size_line(size: dict[str, Any]) -> str:
    batch, rate = size["global_batch_size"], size["lr"]
    figures = [f"{size['world_size']} ranks", f"accumulation {size['accumulate']}"]
    figures += [f"global batch {batch}"] if batch is not None else []
    figures += [f"learning rate {rate:.12g}"] if rate is not None else []
    return f"on {formats.plural(size['nodes'], 'node')}{'':<8}  {', '.join(figures)}"


# The options of `rankzero launch`, as types.


def complete_target(incomplete: str) -> list[str]:
    """Return the recipes and files that complete the target in the shell."""
    paths = [str(path) + ("/" if path.is_dir() else "") for path in Path().glob(f"{incomplete}*")]
    return [name for name in RECIPES if name.startswith(incomplete)] + paths


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A recipe's name, a script, or a folder or git URL with --entry or --module.",
        autocompletion=complete_target,
        show_default=False,
    ),
]
Args = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS…]", help="Arguments of the script.", show_default=False),
]
Name = Annotated[str | None, typer.Option(help="Name of the run.")]
Project = Annotated[str | None, typer.Option(help="Project of the run.", show_default="default")]
Nodes = Annotated[
    str | None,
    typer.Option(
        metavar="N|MIN:MAX",
        help="Number of nodes; a range starts with the nodes available, and grows and shrinks at checkpoints.",
        show_default="1",
    ),
]
GpusPerNode = Annotated[
    int | None, typer.Option("--gpus-per-node", help="Processes per node.", show_default="all free slots")
]
BatchSize = Annotated[int | None, typer.Option(help="Samples per GPU and micro-step.")]
Lr = Annotated[float | None, typer.Option("--lr", help="Learning rate on one GPU, before scaling.")]
Scaling = Annotated[
    LrScaling | None,
    typer.Option("--lr-scaling", help="Multiply --lr by the world size or its root.", show_default="none"),
]
WarmupSteps = Annotated[int | None, typer.Option(help="Steps of linear warm-up.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data.")]
MaxSteps = Annotated[int | None, typer.Option(help="Optimizer steps.")]
Numbers = Annotated[
    Precision | None,
    typer.Option("--precision", help="Number format of the computation.", show_default="fp32"),
]
Accumulate = Annotated[int | None, typer.Option(help="Micro-steps whose gradients are accumulated.", show_default="1")]
Parallelism = Annotated[
    Strategy | None, typer.Option("--strategy", help="How ranks share the work.", show_default="ddp")
]
Starter = Annotated[
    Launcher | None,
    typer.Option("--launcher", help="Program that starts the ranks.", show_default="torchrun"),
]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
Seeds = Annotated[
    str | None, typer.Option(metavar="1,2,3", help="Several seeds: a run for each, compared as one group.")
]
Python = Annotated[str | None, typer.Option(help="Python that runs the script.", show_default="the node's")]
Environment = Annotated[
    str | None,
    typer.Option(
        metavar="auto|lock|none|PATH",
        help="Build the environment of the code's lock file on each node; PATH: which lock, or an environment there.",
        show_default="auto",
    ),
]
Env = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Variable for the ranks; repeatable.")]
Secrets = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Secret for the ranks, as a variable; repeatable: rankzero secret."),
]
Entry = Annotated[str | None, typer.Option(metavar="FILE", help="File to start in a folder or repository.")]
Module = Annotated[str | None, typer.Option(help="Module to start in a folder or repository.")]
Ref = Annotated[str | None, typer.Option(help="Branch, tag or commit of a git URL.", show_default="its HEAD")]
Workdir = Annotated[str | None, typer.Option(metavar="PATH", help="Run in place; the code is not stored then.")]
Link = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=PATH", help="Data folder to link into the working directory; repeatable."),
]
Stage = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE=NAME",
        help="Data that each node brings before the start: an http, https or s3 address, a path, or HOST:PATH.",
    ),
]
Resume = Annotated[str | None, typer.Option(metavar="RUN[:CHECKPOINT]", help="Start from another run's checkpoint.")]
Probe = Annotated[
    bool | None, typer.Option("--probe/--no-probe", help="Load the probe into every rank.", show_default="on")
]
PrintedPattern = Annotated[
    str | None,
    typer.Option(
        "--printed-pattern",
        metavar="PATTERN",
        help="How printed lines are read as series: 'it {step} | loss {loss}'.",
        show_default=False,
    ),
]
HangAfter = Annotated[
    float | None,
    typer.Option("--hang-after", metavar="S", help="Hang timeout: seconds without a step.", show_default="60"),
]
OnHanging = Annotated[
    OnHang | None,
    typer.Option("--on-hang", help="Action at a hang; resume opens the next attempt.", show_default="report"),
]
MaxRestarts = Annotated[
    int | None,
    typer.Option(help="Automatic restarts from the last checkpoint after a failure.", show_default="0"),
]
MinNodes = Annotated[
    int | None,
    typer.Option(help="Minimum nodes for a restart after a node is lost.", show_default="same as --nodes"),
]
OnLost = Annotated[
    OnLostNode | None,
    typer.Option(
        "--on-lost-node",
        help="wait: while the other ranks make steps; end: at once.",
        show_default="wait",
    ),
]
Resized = Annotated[
    LrOnResize | None,
    typer.Option("--lr-on-resize", help="Learning rate on a different number of nodes.", show_default="keep"),
]
TorchrunRestarts = Annotated[
    int | None, typer.Option(help="--max-restarts of torchrun, within an attempt.", show_default="0")
]
StopGrace = Annotated[
    float | None,
    typer.Option(
        "--stop-grace",
        metavar="S",
        help="Stop grace period: seconds to save after a stop.",
        show_default="30",
    ),
]
Priority = Annotated[int | None, typer.Option(help="Higher ones start first, -100 to 100.", show_default="0")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="Only nodes with this label; repeatable."),
]
OnNodes = Annotated[
    list[str] | None, typer.Option("--on", metavar="NODE", help="Only the node of this name; repeatable.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 0 only if it succeeds.")]
WaitForNodes = Annotated[bool, typer.Option("--wait-for-nodes", help="Queue it even if too few nodes are registered.")]
PoolOf = Annotated[
    Pool | None,
    typer.Option("--pool", help="Source of the devices: your own nodes, or slurm.", show_default="nodes"),
]
Partition = Annotated[str | None, typer.Option(help="Slurm partition.", show_default="the cluster's default")]
Account = Annotated[str | None, typer.Option(help="Slurm account.", show_default="yours")]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="T",
        help="In sbatch's format: 90, 12:00:00, 2-12.",
        show_default="the partition's",
    ),
]
SbatchOptions = Annotated[
    list[str] | None,
    typer.Option("--sbatch-option", metavar="--X=Y", help="Further option of sbatch; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be started.")]
