"""Runs Slurm's commands: sbatch, squeue, scontrol, sinfo, scancel."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from typing import Any

from domain.messages import JobReport
from domain.network.trust import CA_FILE
from domain.slurm import Submission

ANSWER_TIMEOUT_S = 60.0


class SlurmAway(Exception):
    """Slurm's controller gave no usable answer: retry later."""


class JobRefused(Exception):
    """Slurm rejects this job; the message is Slurm's own."""


class Slurm:
    """The Slurm cluster as this user sees it. Methods raise SlurmAway unless they say otherwise."""

    def submit(self, submission: Submission, secret: str) -> str:
        """Submit a job whose environment carries the secret; returns its id. Raises JobRefused, SlurmAway."""
        environment = {
            name: value for name, value in os.environ.items() if name == CA_FILE or not name.startswith("RANKZERO_")
        }
        completed = _run(submission.argv, environment | {"RANKZERO_TOKEN": secret}, submission.script)
        if completed.returncode == 0:
            return completed.stdout.strip().splitlines()[-1].partition(";")[0]
        if is_away(completed.stderr):
            raise SlurmAway(refusal(completed.stderr))
        raise JobRefused(refusal(completed.stderr))

    def jobs(self) -> dict[str, tuple[str, JobReport]]:
        """This user's jobs, including those that ended a few minutes ago: job id -> (name, state)."""
        argv = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}"]
        return jobs(_query([*argv, f"--format={JOBS_FORMAT}"]))

    def exit_code(self, job_id: str) -> str:
        """The exit code of an ended job; empty if Slurm no longer knows it."""
        try:
            return exit_code(_query(["scontrol", "--oneliner", "show", "job", job_id]))
        except SlurmAway:
            return ""

    def cancel(self, job_id: str) -> None:
        """Cancel a job; does nothing if it has ended. Raises SlurmAway."""
        _query(["scancel", job_id])

    def partitions(self) -> list[dict[str, Any]]:
        """The cluster's partitions with their nodes, cores and GPUs."""
        return partitions(_query(["sinfo", "--noheader", f"--format={PARTITIONS_FORMAT}"]))

    def node_names(self) -> list[str]:
        """The names of the cluster's nodes."""
        return _query(["sinfo", "--noheader", "--Node", "--format=%N"]).split()

    def version(self) -> str:
        """Slurm's version as `sinfo --version` prints it: slurm-wlm 22.05.8"""
        return _query(["sinfo", "--version"]).strip()


def _query(argv: Sequence[str]) -> str:
    completed = _run(argv, os.environ | {"SLURM_TIME_FORMAT": "%s"})
    if completed.returncode != 0:
        raise SlurmAway(f"{argv[0]}: {refusal(completed.stderr)}")
    return completed.stdout


def _run(argv: Sequence[str], env: dict[str, str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            env=env | {"LC_ALL": "C"},
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SlurmAway(f"{argv[0]} has not answered for {ANSWER_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise SlurmAway(f"{argv[0]} cannot be started here: {error.strerror}") from error


# Parses the output of Slurm's commands, in formats that every version since 20.11 supports; pure functions.

JOBS_FORMAT = "%i|%j|%T|%P|%N|%S|%l|%r"
PARTITIONS_FORMAT = "%P|%a|%D|%c|%G|%l"
AWAY = re.compile(
    "unable to contact|socket timed out|standby mode|zero bytes|connection refused|connection timed out|"
    "temporarily|communication connection|munge|authentication",
    re.IGNORECASE,
)


def jobs(printed: str) -> dict[str, tuple[str, JobReport]]:
    """Parse squeue's lines in JOBS_FORMAT, with times in epoch seconds: job id -> (name, state)."""
    reports = {}
    for line in printed.splitlines():
        fields = line.strip().split("|", 7)
        if len(fields) == 8:
            job_id, name, state, partition, nodes, starts_at, limit, reason = fields
            reports[job_id] = (
                name,
                JobReport(
                    job_id=job_id,
                    state=state.strip(),
                    reason="" if state == "RUNNING" else reason.strip(),
                    partition=partition,
                    nodes=nodes,
                    starts_at=float(starts_at) if starts_at.isdigit() else None,
                    time_limit=limit,
                ),
            )
    return reports


def exit_code(printed: str) -> str:
    """The exit code in a line of `scontrol --oneliner show job`, such as `1` or `0 (signal 9)`."""
    if (match := re.search(r"\bExitCode=(\d+):(\d+)", printed)) is None:
        return ""
    return match[1] if match[2] == "0" else f"{match[1]} (signal {match[2]})"


def partitions(printed: str) -> list[dict[str, Any]]:
    """Parse sinfo's lines in PARTITIONS_FORMAT; a partition of different nodes has a line for each kind."""
    by_name: dict[str, dict[str, Any]] = {}
    for line in printed.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 6:
            continue
        name, up, nodes, cpus, gres, limit = fields
        partition = by_name.setdefault(
            name.rstrip("*"),
            {
                "name": name.rstrip("*"),
                "is_default": False,
                "nodes": 0,
                "cpus_per_node": 0,
                "gpus_per_node": 0,
            },
        )
        partition["is_default"] |= name.endswith("*")
        partition["is_up"], partition["time_limit"] = up == "up", limit
        partition["nodes"] += _number(nodes)
        partition["cpus_per_node"] = max(partition["cpus_per_node"], _number(cpus))
        partition["gpus_per_node"] = max(partition["gpus_per_node"], gpus(gres))
    return list(by_name.values())


def gpus(gres: str) -> int:
    """The number of GPUs: 4 for `gpu:4` and for `gpu:a100:2(S:0),gpu:v100:2`, 0 for `(null)`."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    return sum(
        int(fields[-1]) if fields[-1].isdigit() else 1
        for fields in (entry.split(":") for entry in plain.split(","))
        if fields[0] == "gpu"
    )


def refusal(printed: str) -> str:
    """The last error message of sbatch."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines
    return errors[-1].partition("error:")[2].strip() or errors[-1] if errors else "sbatch gave no reason"


def is_away(printed: str) -> bool:
    """Whether the controller does not answer, rather than rejecting the job."""
    return AWAY.search(printed) is not None


def _number(text: str) -> int:
    """The leading number of a field; sinfo writes 4+ if the nodes of a line differ."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0
