"""Runs Slurm's commands: sbatch, squeue, scontrol, sinfo, scancel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from domain.launch.slurm_script import Submission
from domain.messages import JobReport
from worker.slurm import parsing

ANSWER_TIMEOUT_S = 60.0


class SlurmAway(Exception):
    """Slurm's controller gave no usable answer: retry later."""


class JobRefused(Exception):
    """Slurm rejects this job; the message is Slurm's own."""


class Slurm:
    """The Slurm cluster as this user sees it. Methods raise SlurmAway unless they say otherwise."""

    def submit(self, submission: Submission, secret: str) -> str:
        """Submit a job whose environment carries the secret; returns its id. Raises JobRefused, SlurmAway."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        completed = _run(submission.argv, environment | {"RANKZERO_TOKEN": secret}, submission.script)
        if completed.returncode == 0:
            return completed.stdout.strip().splitlines()[-1].partition(";")[0]
        if parsing.is_away(completed.stderr):
            raise SlurmAway(parsing.refusal(completed.stderr))
        raise JobRefused(parsing.refusal(completed.stderr))

    def jobs(self) -> dict[str, tuple[str, JobReport]]:
        """This user's jobs, including those that ended a few minutes ago: job id -> (name, state)."""
        argv = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}"]
        return parsing.jobs(_query([*argv, f"--format={parsing.JOBS_FORMAT}"]))

    def exit_code(self, job_id: str) -> str:
        """The exit code of an ended job; empty if Slurm no longer knows it."""
        try:
            return parsing.exit_code(_query(["scontrol", "--oneliner", "show", "job", job_id]))
        except SlurmAway:
            return ""

    def cancel(self, job_id: str) -> None:
        """Cancel a job; does nothing if it has ended. Raises SlurmAway."""
        _query(["scancel", job_id])

    def partitions(self) -> list[dict[str, Any]]:
        """The cluster's partitions with their nodes, cores and GPUs."""
        return parsing.partitions(_query(["sinfo", "--noheader", f"--format={parsing.PARTITIONS_FORMAT}"]))

    def version(self) -> str:
        """Slurm's version as `sinfo --version` prints it: slurm-wlm 22.05.8"""
        return _query(["sinfo", "--version"]).strip()


def _query(argv: Sequence[str]) -> str:
    completed = _run(argv, os.environ | {"SLURM_TIME_FORMAT": "%s"})
    if completed.returncode != 0:
        raise SlurmAway(f"{argv[0]}: {parsing.refusal(completed.stderr)}")
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
