"""Slurm as its commands: sbatch, squeue, scontrol, sinfo, scancel."""

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
    """No answer that counts: the controller is worth asking again, a little later."""


class JobRefused(Exception):
    """Slurm will not take this job as it is; the text is its own sentence."""


class Slurm:
    """The cluster, as this user sees it."""

    def submit(self, wanted: Submission, secret: str) -> str:
        """Submit a job whose environment carries the secret; its id. Raises JobRefused, SlurmAway."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        done = _run(wanted.argv, own | {"RANKZERO_TOKEN": secret}, wanted.script)
        if done.returncode == 0:
            return done.stdout.strip().splitlines()[-1].partition(";")[0]
        if parsing.is_away(done.stderr):
            raise SlurmAway(parsing.refusal(done.stderr))
        raise JobRefused(parsing.refusal(done.stderr))

    def jobs(self) -> dict[str, tuple[str, JobReport]]:
        """This user's jobs, also those that ended a few minutes ago: by id the name and the state."""
        argv = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}"]
        return parsing.jobs(_ask([*argv, f"--format={parsing.JOBS_FORMAT}"]))

    def exit_code(self, job_id: str) -> str:
        """Of a job that has ended; empty where Slurm has forgotten it."""
        try:
            return parsing.exit_code(_ask(["scontrol", "--oneliner", "show", "job", job_id]))
        except SlurmAway:
            return ""

    def cancel(self, job_id: str) -> None:
        """End a job; one that is over stays so. Raises SlurmAway."""
        _ask(["scancel", job_id])

    def partitions(self) -> list[dict[str, Any]]:
        """What the cluster offers."""
        return parsing.partitions(_ask(["sinfo", "--noheader", f"--format={parsing.PARTITIONS_FORMAT}"]))

    def version(self) -> str:
        """As `sinfo --version` says it: slurm-wlm 22.05.8"""
        return _ask(["sinfo", "--version"]).strip()


def _ask(argv: Sequence[str]) -> str:
    done = _run(argv, os.environ | {"SLURM_TIME_FORMAT": "%s"})
    if done.returncode != 0:
        raise SlurmAway(f"{argv[0]}: {parsing.refusal(done.stderr)}")
    return done.stdout


def _run(argv: Sequence[str], env: dict[str, str], given: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            env=env | {"LC_ALL": "C"},
            input=given,
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
