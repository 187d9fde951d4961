"""From an attempt to what sbatch is given: its options, and the script that starts one worker a node; pure."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass

from domain.spec import RunSpec

DELIVERY_S = 60.0
"""Beside the grace of a run, to hand over what it saved before the time limit."""
SHORTEST_WARNED_S = 120.0
"""Slurm warns up to a minute early: of a shorter job nothing would be left."""
GPU_OPTION = re.compile(r"--(gres|gpus|gpus-per-.*|tres-per-.*)(=.*)?")
CPU_OPTION = re.compile(r"--cpus-per-.*")


@dataclass(frozen=True)
class GatewayPaths:
    """Where the nodes of a job find the server, the worker and their disk."""

    server: str
    data: str
    """Where the workers keep their data: in a folder for each job; may be on the nodes' own disks."""
    output: str
    """Where the gateway reads what jobs print; of each job in a folder too."""
    python: str
    """The interpreter of the workers."""
    training_python: str
    """What trains where a run names nothing else."""


@dataclass(frozen=True)
class Submission:
    """One call of sbatch; the script goes to its standard input."""

    argv: list[str]
    script: str


def job_name(run_id: str, attempt: int) -> str:
    """By this a job is found again; no two attempts have the same."""
    return f"rankzero-{run_id}-{attempt}"


def submission(
    spec: RunSpec, run_id: str, attempt: int, fence: int, place: GatewayPaths, has_gpus: bool
) -> Submission:
    """The job of one attempt. What a run adds comes first: where both say something, ours holds."""
    name = job_name(run_id, attempt)
    chosen = {
        "partition": spec.slurm.partition,
        "account": spec.slurm.account,
        "time": spec.slurm.time_limit,
        "signal": _warning(spec),
    }
    argv = ["sbatch", "--parsable", f"--output={place.output}/{name}/job-%j.log", *spec.slurm.options]
    argv += [f"--{option}={value}" for option, value in chosen.items() if value]
    argv += [f"--job-name={name}", f"--nodes={spec.nodes}", "--ntasks-per-node=1"]
    argv += [*_devices(spec, has_gpus), "--no-requeue", "--export=ALL"]
    return Submission(argv, _script(spec, name, fence, place))


def seconds_of(time_limit: str) -> float:
    """Of a time as sbatch takes it: minutes, m:s, h:m:s, days-hours, days-h:m, days-h:m:s."""
    days, dash, rest = time_limit.rpartition("-")
    numbers = [int(number) for number in rest.split(":")]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return float(int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds)
    if len(numbers) == 3:
        return float(numbers[0] * 3600 + numbers[1] * 60 + numbers[2])
    return float(numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0))


def _warning(spec: RunSpec) -> str | None:
    """SIGURG goes to every process of the job, and is ignored by all that do not ask for it, as a rank."""
    before_s = math.ceil(spec.stop_grace_s + DELIVERY_S)
    if spec.slurm.time_limit is None:
        return f"URG@{before_s}"
    limit_s = seconds_of(spec.slurm.time_limit)
    return None if 0 < limit_s < SHORTEST_WARNED_S else f"URG@{min(before_s, int(limit_s) // 4) or before_s}"


def _devices(spec: RunSpec, has_gpus: bool) -> list[str]:
    """GPUs where the partition has some, else a core for each rank; unless the run's own options say it."""
    count = spec.gpus_per_node or 1
    if any(GPU_OPTION.fullmatch(option) for option in spec.slurm.options):
        return []
    if has_gpus:
        return [f"--gpus-per-node={count}"]
    own = any(CPU_OPTION.fullmatch(option) for option in spec.slurm.options)
    return [] if own else [f"--cpus-per-task={count}"]


def _script(spec: RunSpec, name: str, fence: int, place: GatewayPaths) -> str:
    worker = [place.python, "-P", "-m", "worker", "--only-attempt", str(fence), "--server", place.server]
    worker += [
        "--data",
        f"{place.data}/{name}",
        "--slots",
        str(spec.gpus_per_node or 1),
        "--python",
        place.training_python,
    ]
    step = ["srun", f"--nodes={spec.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"]
    return (
        "#!/bin/sh\n"
        f"# {name}: on each node one worker of Rankzero, for this attempt alone\n"
        "unset SLURM_TIME_FORMAT\n"
        'if [ -n "$SLURM_CPUS_PER_TASK" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi\n'
        f"exec {shlex.join(step)} {shlex.join(worker)}\n"
    )
