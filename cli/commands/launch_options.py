"""The options of `rankzero launch`, as types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Env = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Variable for the ranks; repeatable.")]
Entry = Annotated[str | None, typer.Option(metavar="FILE", help="File to start in a folder or repository.")]
Module = Annotated[str | None, typer.Option(help="Module to start in a folder or repository.")]
Ref = Annotated[str | None, typer.Option(help="Branch, tag or commit of a git URL.", show_default="its HEAD")]
Workdir = Annotated[str | None, typer.Option(metavar="PATH", help="Run in place; the code is not stored then.")]
Link = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=PATH", help="Data folder to link into the working directory; repeatable."),
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
