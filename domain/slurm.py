"""What Slurm says of a job, in words: why it waits, and what its end means for the attempt; pure."""

from __future__ import annotations

from typing import NamedTuple

from domain.messages import JobReport, Reason

_WAITS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "waiting for resources",
    "Priority": "jobs that come before it wait too",
    "Dependency": "waiting for another job",
    "DependencyNeverSatisfied": "the job it depends on failed: it will never start",
    "BeginTime": "the time at which it may begin has not come",
    "JobHeldUser": "held by its user; `scontrol release` lets it go",
    "JobHeldAdmin": "held by an administrator of the cluster",
    "PartitionNodeLimit": "the partition never gives so many nodes to one job",
    "PartitionTimeLimit": "its time limit is longer than the partition allows",
    "PartitionConfig": "the partition cannot give what it asks for",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes jobs but starts none",
    "AccountNotAllowed": "the partition does not admit its account",
    "BadConstraints": "no node of the cluster has what it asks for",
    "Licenses": "waiting for licenses",
    "Reservation": "waiting for its reservation",
    "ReqNodeNotAvail": "a node it names is not available",
    "NodeDown": "a node it needs is down",
    "Cleaning": "an earlier try is still being cleaned up",
    "launch failed requeued held": "Slurm could not start it and holds it",
}
_AGAIN = "Resume it: it goes on from its last complete checkpoint, in a new job."
_LONGER = (
    "Resume it, with a longer time limit if the cluster allows one: it goes on from its last checkpoint."
)


class End(NamedTuple):
    """Why an attempt failed whose job is over."""

    reason: Reason
    message: str
    next_step: str | None


def waits(said: JobReport | None) -> str:
    """Slurm: waiting for resources (job 123, partition gpu)"""
    if said is None:
        return "Slurm: the job is being submitted"
    if said.state in ("RUNNING", "CONFIGURING", "COMPLETING"):
        on = f" on {said.nodes}" if said.nodes else ""
        return f"Slurm: job {said.job_id} runs{on}; its workers are on their way here"
    why = _in_words(said.reason) if said.state == "PENDING" else f"the job is {said.state.lower()}"
    partition = f", partition {said.partition}" if said.partition else ""
    return f"Slurm: {why} (job {said.job_id}{partition})"


def end(said: JobReport) -> End:
    """What the end of a job means for an attempt whose ranks have not told theirs."""
    if said.state == "REFUSED":
        text = f"Slurm refused the job: {said.reason.rstrip('.')}."
        return End(Reason.LAUNCH_FAILED, text, "Change what it is submitted with, and launch it again.")
    job = f"The Slurm job {said.job_id}"
    if said.state in ("TIMEOUT", "DEADLINE"):
        limit = f" of {said.time_limit}" if said.time_limit else ""
        return End(Reason.TIME_LIMIT, f"{job} reached its time limit{limit} and was ended by Slurm.", _LONGER)
    if said.state == "CANCELLED":
        return End(Reason.KILLED, f"{job} was cancelled in Slurm, not from here.", _AGAIN)
    if said.state == "PREEMPTED":
        return End(Reason.KILLED, f"{job} was preempted: another one took its nodes.", _AGAIN)
    if said.state in ("NODE_FAIL", "BOOT_FAIL"):
        return End(
            Reason.NODE_LOST, f"{job} was ended by Slurm: a node of {said.nodes or 'it'} failed.", _AGAIN
        )
    if said.state == "OUT_OF_MEMORY":
        step = "Ask for more memory (--sbatch-option=--mem=…), or lower the batch size."
        return End(Reason.OUT_OF_MEMORY, f"{job} used more memory than it was given.", step)
    return _ended_early(job, said)


def _ended_early(job: str, said: JobReport) -> End:
    state = said.state.lower().replace("_", " ")
    code = f", exit code {said.exit_code}" if said.exit_code else ""
    text = f"{job} is over ({state}{code}), but its workers have not told the end of the run."
    if said.output:
        text += f" It printed: {said.output}"
    step = "The nodes must see Rankzero and its data folder under the same paths, and reach the dashboard."
    return End(Reason.LAUNCH_FAILED, text, step)


def _in_words(reason: str) -> str:
    """Reasons may carry more behind a comma, as ReqNodeNotAvail does."""
    word = reason.partition(",")[0].strip()
    if word in _WAITS:
        rest = reason.partition(",")[2].strip()
        return f"{_WAITS[word]} ({rest})" if rest else _WAITS[word]
    if word.startswith(("QOS", "Assoc", "MaxJobs", "MaxCpu", "MaxNode", "MaxTRES", "Grp")):
        return f"a limit of its account or quality of service is reached ({reason})"
    return reason or "waiting"
