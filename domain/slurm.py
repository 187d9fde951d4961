"""Slurm's job states as sentences: why a job waits, and the meaning of its end for the attempt. Pure."""

from __future__ import annotations

from typing import NamedTuple

from domain.messages import JobReport, Reason

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
