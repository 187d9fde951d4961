"""The Slurm job that a worker runs in, and the report of an end at its time limit."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from domain.messages import Reason, TaskReport
from worker.node.state_files import SETTLED, read_object

WARNING_SIGNAL = signal.SIGURG
"""Slurm sends it to every process of a job some time before the limit; processes ignore it by default."""
TIME_LIMIT_GRACE_S = 3600.0
"""An upper limit; a run's own grace is shorter, and the job was given that time."""


@dataclass(frozen=True)
class SlurmJob:
    """The single attempt that this worker serves, and the node's name in Slurm."""

    fence: int
    node: str

    @classmethod
    def current(cls, fence: int) -> SlurmJob:
        """The job that this process belongs to."""
        return cls(fence, os.environ.get("SLURMD_NODENAME") or os.uname().nodename)

    @property
    def pool(self) -> str:
        """The pool of the job's nodes, which no other attempt may use."""
        return f"slurm:{self.fence}"

    def has_succeeded(self, data: Path) -> bool:
        """Whether every task of this node in the job has succeeded."""
        states = [read_object(path).get("state") for path in data.glob("runs/*/attempts/*/node*/worker/reported.json")]
        return bool(states) and set(states) <= SETTLED and set(states) == {"succeeded"}


def at_time_limit(end: TaskReport) -> TaskReport:
    """The report of a task that was stopped because its job's time limit was near."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return end.model_copy(
        update={
            "state": "failed",
            "reason": Reason.TIME_LIMIT,
            "message": f"The time limit of its Slurm job {job} was near, so it was asked to save and end.",
            "next_step": "Resume it: it continues from its last checkpoint, in a new job.",
        }
    )
