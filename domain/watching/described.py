"""Describe what somebody else started as a run: its spec, its name, and how many ranks it has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from domain.spec import RunSpec
from domain.watching.messages import WatchedCommand, WatchRequest

LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
"""Modules that start the script named behind them."""
LONGEST = 4096


class WatchedProgram(NamedTuple):
    """What a command trains with: a script or module, and its arguments."""

    target: str
    args: list[str]
    module: str | None = None


def spec_of(request: WatchRequest) -> RunSpec:
    """Return the spec of the run that a process begins. Raises ValidationError."""
    program = program_of(request.command)
    nodes, ranks = dimensions(request.processes or 1, [request.ranks_here], [request.world_size])
    return RunSpec(
        target=program.target[:LONGEST],
        module=program.module,
        args=program.args,
        name=request.name,
        project=request.project,
        nodes=nodes,
        gpus_per_node=ranks,
        launcher="python",
        workdir=request.command.cwd,
        python=request.python,
        stop_grace_s=request.stop_grace_s,
        environment="none",
    )


def name_of(request: WatchRequest, spec: RunSpec) -> str:
    """Return the run's name: as it was given, else its module's or script's."""
    default = "notebook" if not request.command.argv else PurePosixPath(spec.target).stem
    return request.name or spec.module or default or "run"


def program_of(command: WatchedCommand) -> WatchedProgram:
    """Return the first script or module behind the launchers of a command; else the command itself."""
    argv = command.argv
    for at, argument in enumerate(argv):
        if argument.endswith(".py") and not argument.startswith("-"):
            return WatchedProgram(str(PurePosixPath(command.cwd, argument)), argv[at + 1 :])
        module = argv[at + 1] if argument == "-m" and at + 1 < len(argv) else None
        if module is not None and module not in LAUNCHERS and all(map(str.isidentifier, module.split("."))):
            return WatchedProgram(command.cwd, argv[at + 2 :], module)
    return WatchedProgram(argv[0] or command.cwd, argv[1:]) if argv else WatchedProgram(command.cwd, [])


def dimensions(expected: int, ranks: Sequence[int | None], worlds: Sequence[int | None]) -> tuple[int, int]:
    """Return how many processes a run has, and how many ranks each of them, so that they give its world size.

    `ranks`, `worlds`: of each process that has come, as far as they are known. Where the processes do not share one
    world, all their ranks count; where they cannot be divided evenly, as those of one process."""
    nodes, known = max(expected, len(ranks)), {world for world in worlds if world}
    usual = max((one for one in ranks if one), default=1)
    counted = sum(one or usual for one in ranks) + (nodes - len(ranks)) * usual
    is_shared = len(known) == 1 and sum(one or 0 for one in ranks) <= max(known)
    total = max(known) if is_shared else counted
    return (nodes, total // nodes) if total % nodes == 0 else (1, total)
