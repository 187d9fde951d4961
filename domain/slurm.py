"""Slurm: the sbatch options and script of an attempt, and its job's states as sentences. Pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from domain.messages import JobReport, Reason
from domain.spec import RunSpec


def waits(report: JobReport | None) -> str:
    """Slurm: waiting for resources (job 123, partition gpu)"""
    if report is None:
        return "Slurm: the job is being submitted"
    if report.state in ("RUNNING", "CONFIGURING", "COMPLETING"):
        on = f" on {report.nodes}" if report.nodes else ""
        return f"Slurm: job {report.job_id} runs{on}; its workers are connecting"
    why = _in_words(report.reason) if report.state == "PENDING" else f"the job is {report.state.lower()}"
    partition = f", partition {report.partition}" if report.partition else ""
    return f"Slurm: {why} (job {report.job_id}{partition})"


_WAITS = {
    "None": "Slurm has not considered it yet",
    "Resources": "waiting for resources",
    "Priority": "jobs of higher priority are waiting",
    "Dependency": "waiting for another job",
    "DependencyNeverSatisfied": "the job it depends on failed: it will never start",
    "BeginTime": "its earliest start time has not been reached",
    "JobHeldUser": "held by its user; `scontrol release` lets it go",
    "JobHeldAdmin": "held by an administrator of the cluster",
    "PartitionNodeLimit": "it requests more nodes than the partition allows",
    "PartitionTimeLimit": "its time limit is longer than the partition allows",
    "PartitionConfig": "the partition cannot satisfy its request",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition accepts jobs but starts none",
    "AccountNotAllowed": "the partition does not admit its account",
    "BadConstraints": "no node of the cluster satisfies its request",
    "Licenses": "waiting for licenses",
    "Reservation": "waiting for its reservation",
    "ReqNodeNotAvail": "a node it names is not available",
    "NodeDown": "a node it needs is down",
    "Cleaning": "an earlier start is still being cleaned up",
    "launch failed requeued held": "Slurm could not start it and holds it",
}
_AGAIN = "Resume it: it continues from its last complete checkpoint, in a new job."
_LONGER = "Resume it, with a longer time limit if the cluster allows one: it continues from its last checkpoint."


class End(NamedTuple):
    """The reason, message and next step of an attempt whose job has ended."""

    reason: Reason
    message: str
    next_step: str | None


def end(report: JobReport) -> End:
    """Explain the end of a job whose workers did not report the end of their ranks."""
    if report.state == "REFUSED":
        text = f"Slurm refused the job: {report.reason.rstrip('.')}."
        return End(Reason.LAUNCH_FAILED, text, "Change the options of the job, and launch it again.")
    job = f"The Slurm job {report.job_id}"
    if report.state in ("TIMEOUT", "DEADLINE"):
        limit = f" of {report.time_limit}" if report.time_limit else ""
        return End(Reason.TIME_LIMIT, f"{job} reached its time limit{limit} and was ended by Slurm.", _LONGER)
    if report.state == "CANCELLED":
        return End(Reason.KILLED, f"{job} was cancelled in Slurm, not by Rankzero.", _AGAIN)
    if report.state == "PREEMPTED":
        return End(Reason.KILLED, f"{job} was preempted: another job took its nodes.", _AGAIN)
    if report.state in ("NODE_FAIL", "BOOT_FAIL"):
        return End(Reason.NODE_LOST, f"{job} was ended by Slurm: a node of {report.nodes or 'it'} failed.", _AGAIN)
    if report.state == "OUT_OF_MEMORY":
        step = "Ask for more memory (--sbatch-option=--mem=…), or lower the batch size."
        return End(Reason.OUT_OF_MEMORY, f"{job} used more memory than was allocated to it.", step)
    return _ended_early(job, report)


def _ended_early(job: str, report: JobReport) -> End:
    state = report.state.lower().replace("_", " ")
    code = f", exit code {report.exit_code}" if report.exit_code else ""
    text = f"{job} is over ({state}{code}), but its workers have not reported the end of the run."
    if report.output:
        text += f" It printed: {report.output}"
    step = "The nodes must see Rankzero and its data folder under the same paths, and reach the dashboard."
    return End(Reason.LAUNCH_FAILED, text, step)


def _in_words(reason: str) -> str:
    """The reason as a phrase, with the detail that some reasons (ReqNodeNotAvail) give after a comma."""
    code = reason.partition(",")[0].strip()
    if code in _WAITS:
        detail = reason.partition(",")[2].strip()
        return f"{_WAITS[code]} ({detail})" if detail else _WAITS[code]
    if code.startswith(("QOS", "Assoc", "MaxJobs", "MaxCpu", "MaxNode", "MaxTRES", "Grp")):
        return f"a limit of its account or quality of service is reached ({reason})"
    return reason or "waiting"


# Build the sbatch options and script of an attempt; the script starts one worker per node. Pure.

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


def submission(
    spec: RunSpec,
    run_id: str,
    attempt: int,
    fence: int,
    paths: GatewayPaths,
    has_gpus: bool,
    exclude: Sequence[str] = (),
) -> Submission:
    """The job of one attempt. The run's own options come first, so that ours override them.

    `exclude`: nodes that the job is not to get, beside those that the run's options exclude."""
    name = job_name(run_id, attempt)
    chosen = {
        "partition": spec.slurm.partition,
        "account": spec.slurm.account,
        "time": spec.slurm.time_limit,
        "signal": _warning(spec),
        "exclude": ",".join([*_own_exclusions(spec), *exclude]) if exclude else None,
    }
    argv = ["sbatch", "--parsable", f"--output={paths.output}/{name}/job-%j.log", *spec.slurm.options]
    argv += [f"--{option}={value}" for option, value in chosen.items() if value]
    argv += [f"--job-name={name}", f"--nodes={spec.nodes}", "--ntasks-per-node=1"]
    argv += [*_devices(spec, has_gpus), "--no-requeue", "--export=ALL"]
    return Submission(argv, _script(spec, name, fence, paths))


def _own_exclusions(spec: RunSpec) -> list[str]:
    """Lists of nodes that the run's own options exclude."""
    named = [option.partition("=") for option in spec.slurm.options]
    return [value for name, _, value in named if name == "--exclude" and value]


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
