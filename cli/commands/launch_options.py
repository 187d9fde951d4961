"""The options of `rankzero launch`, as types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from domain.launch.plan import recipe_names
from domain.spec import Launcher, LrOnResize, LrScaling, OnHang, OnLostNode, Pool, Precision, Strategy


def complete_target(incomplete: str) -> list[str]:
    """Recipes and files for the shell."""
    found = [str(path) + ("/" if path.is_dir() else "") for path in Path().glob(f"{incomplete}*")]
    return [name for name in recipe_names() if name.startswith(incomplete)] + found


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
    list[str] | None, typer.Argument(metavar="[-- ARGS…]", help="The script's own.", show_default=False)
]
Name = Annotated[str | None, typer.Option(help="What to call the run.")]
Project = Annotated[str | None, typer.Option(help="What it belongs to.", show_default="default")]
Nodes = Annotated[
    str | None,
    typer.Option(
        metavar="N|MIN:MAX",
        help="Number of nodes; as a range it starts with those there are, and grows and shrinks at a checkpoint.",
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
    Precision | None, typer.Option("--precision", help="What it computes in.", show_default="fp32")
]
Accumulate = Annotated[int | None, typer.Option(help="Micro-steps whose gradients add up.", show_default="1")]
Parallelism = Annotated[
    Strategy | None, typer.Option("--strategy", help="How ranks share the work.", show_default="ddp")
]
Starter = Annotated[
    Launcher | None, typer.Option("--launcher", help="What starts the ranks.", show_default="torchrun")
]
Seed = Annotated[int | None, typer.Option(help="Seed of all random numbers.")]
Python = Annotated[str | None, typer.Option(help="Interpreter that trains.", show_default="the node's")]
Env = Annotated[list[str] | None, typer.Option(metavar="K=V", help="Variable for the ranks; repeatable.")]
Entry = Annotated[str | None, typer.Option(metavar="FILE", help="File to start in a folder or repository.")]
Module = Annotated[str | None, typer.Option(help="Module to start in a folder or repository.")]
Ref = Annotated[str | None, typer.Option(help="Branch, tag or commit of a git URL.", show_default="its HEAD")]
Workdir = Annotated[str | None, typer.Option(metavar="PATH", help="Run in place; the code is not kept then.")]
Link = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=PATH", help="Data folder to show in the working directory; repeatable."),
]
Resume = Annotated[
    str | None, typer.Option(metavar="RUN[:CHECKPOINT]", help="Start from another run's checkpoint.")
]
Probe = Annotated[
    bool | None, typer.Option("--probe/--no-probe", help="Watch every rank from inside.", show_default="on")
]
HangAfter = Annotated[
    float | None,
    typer.Option(
        "--hang-after", metavar="S", help="Seconds without a step that are a hang.", show_default="60"
    ),
]
OnHanging = Annotated[
    OnHang | None,
    typer.Option("--on-hang", help="What a hang leads to; resume: the next attempt.", show_default="report"),
]
MaxRestarts = Annotated[
    int | None,
    typer.Option(
        help="Attempts opened by themselves, from the last checkpoint, after one failed.", show_default="0"
    ),
]
MinNodes = Annotated[
    int | None, typer.Option(help="With so many a later attempt makes do.", show_default="as --nodes")
]
OnLost = Annotated[
    OnLostNode | None,
    typer.Option(
        "--on-lost-node", help="wait: while the other ranks step; end: at once.", show_default="wait"
    ),
]
Resized = Annotated[
    LrOnResize | None,
    typer.Option("--lr-on-resize", help="The learning rate on another number of nodes.", show_default="keep"),
]
TorchrunRestarts = Annotated[
    int | None, typer.Option(help="torchrun's own --max-restarts, within an attempt.", show_default="0")
]
StopGrace = Annotated[
    float | None,
    typer.Option(
        "--stop-grace", metavar="S", help="Seconds to save in when it is stopped.", show_default="30"
    ),
]
Priority = Annotated[int | None, typer.Option(help="Higher ones start first, -100 to 100.", show_default="0")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="Only nodes with this label; repeatable."),
]
OnNodes = Annotated[
    list[str] | None, typer.Option("--on", metavar="NODE", help="Only the nodes so named; repeatable.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit 0 only when it succeeded.")]
WaitForNodes = Annotated[
    bool, typer.Option("--wait-for-nodes", help="Queue it even when the known nodes do not suffice.")
]
PoolOf = Annotated[
    Pool | None,
    typer.Option("--pool", help="Who gives the devices: our own nodes, or slurm.", show_default="nodes"),
]
Partition = Annotated[str | None, typer.Option(help="Slurm's.", show_default="the cluster's default")]
Account = Annotated[str | None, typer.Option(help="Slurm's.", show_default="yours")]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="T",
        help="As sbatch takes it: 90, 12:00:00, 2-12.",
        show_default="the partition's",
    ),
]
SbatchOptions = Annotated[
    list[str] | None,
    typer.Option("--sbatch-option", metavar="--X=Y", help="Further option of sbatch; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be started.")]
