"""Build the sbatch options and script of an attempt; the script starts one worker per node. Pure."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass

from domain.spec import RunSpec

DELIVERY_S = 60.0
"""Seconds beyond a run's grace period to upload what it saved before the time limit."""
SHORTEST_WARNED_S = 120.0
"""Slurm warns up to a minute early, which would leave nothing of a shorter job."""
GPU_OPTION = re.compile(r"--(gres|gpus|gpus-per-.*|tres-per-.*)(=.*)?")
CPU_OPTION = re.compile(r"--cpus-per-.*")


@dataclass(frozen=True)
class GatewayPaths:
    """The paths and addresses that the workers of a job use."""

    server: str
    data: str
    """The workers' data folder, with a subfolder per job; it may be on the nodes' own disks."""
    output: str
    """The folder from which the gateway reads the jobs' output, with a subfolder per job."""
    python: str
    """The workers' interpreter."""
    training_python: str
    """The interpreter for training, where a run does not name another."""


@dataclass(frozen=True)
class Submission:
    """One call of sbatch; the script goes to its standard input."""

    argv: list[str]
    script: str


def job_name(run_id: str, attempt: int) -> str:
    """The unique name by which an attempt's job is found again."""
    return f"rankzero-{run_id}-{attempt}"


def submission(spec: RunSpec, run_id: str, attempt: int, fence: int, paths: GatewayPaths, has_gpus: bool) -> Submission:
    """The job of one attempt. The run's own options come first, so that ours override them."""
    name = job_name(run_id, attempt)
    chosen = {
        "partition": spec.slurm.partition,
        "account": spec.slurm.account,
        "time": spec.slurm.time_limit,
        "signal": _warning(spec),
    }
    argv = ["sbatch", "--parsable", f"--output={paths.output}/{name}/job-%j.log", *spec.slurm.options]
    argv += [f"--{option}={value}" for option, value in chosen.items() if value]
    argv += [f"--job-name={name}", f"--nodes={spec.nodes}", "--ntasks-per-node=1"]
    argv += [*_devices(spec, has_gpus), "--no-requeue", "--export=ALL"]
    return Submission(argv, _script(spec, name, fence, paths))


def seconds_of(time_limit: str) -> float:
    """Seconds of an sbatch time: minutes, m:s, h:m:s, days-hours, days-h:m or days-h:m:s."""
    days, dash, time = time_limit.rpartition("-")
    numbers = [int(number) for number in time.split(":")]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return float(int(days) * 86_400 + hours * 3600 + minutes * 60 + seconds)
    if len(numbers) == 3:
        return float(numbers[0] * 3600 + numbers[1] * 60 + numbers[2])
    return float(numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0))


def _warning(spec: RunSpec) -> str | None:
    """The value of --signal. SIGURG goes to every process of the job; ranks ignore it by default."""
    before_s = math.ceil(spec.stop_grace_s + DELIVERY_S)
    if spec.slurm.time_limit is None:
        return f"URG@{before_s}"
    limit_s = seconds_of(spec.slurm.time_limit)
    return None if 0 < limit_s < SHORTEST_WARNED_S else f"URG@{min(before_s, int(limit_s) // 4) or before_s}"


def _devices(spec: RunSpec, has_gpus: bool) -> list[str]:
    """GPU options where the partition has GPUs, else a core per rank, unless the run's own options set them."""
    count = spec.gpus_per_node or 1
    if any(GPU_OPTION.fullmatch(option) for option in spec.slurm.options):
        return []
    if has_gpus:
        return [f"--gpus-per-node={count}"]
    has_cpu_option = any(CPU_OPTION.fullmatch(option) for option in spec.slurm.options)
    return [] if has_cpu_option else [f"--cpus-per-task={count}"]


def _script(spec: RunSpec, name: str, fence: int, paths: GatewayPaths) -> str:
    worker = [paths.python, "-P", "-m", "worker", "--only-attempt", str(fence), "--server", paths.server]
    worker += [
        "--data",
        f"{paths.data}/{name}",
        "--slots",
        str(spec.gpus_per_node or 1),
        "--python",
        paths.training_python,
    ]
    step = ["srun", f"--nodes={spec.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"]
    return (
        "#!/bin/sh\n"
        f"# {name}: one Rankzero worker on each node, for this attempt only\n"
        "unset SLURM_TIME_FORMAT\n"
        'if [ -n "$SLURM_CPUS_PER_TASK" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi\n'
        f"exec {shlex.join(step)} {shlex.join(worker)}\n"
    )
