"""What a worker within a Slurm job knows of it, and what becomes of that when it ends."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from domain.messages import Reason, TaskReport
from worker.node.state_files import SETTLED, read_object

WARNING_SIGNAL = signal.SIGURG
"""Slurm sends it some time before the limit to every process of a job; those that do not wait for it ignore it."""
TIME_LIMIT_GRACE_S = 3600.0
"""At most; a run's own grace is shorter, and the job was given that time."""


@dataclass(frozen=True)
class InJob:
    """The one attempt that this worker is for, and its node as Slurm calls it."""

    fence: int
    node: str

    @classmethod
    def here(cls, fence: int) -> InJob:
        """Of the job this process is part of."""
        return cls(fence, os.environ.get("SLURMD_NODENAME") or os.uname().nodename)

    @property
    def pool(self) -> str:
        """Its nodes are given to nobody else."""
        return f"slurm:{self.fence}"

    def has_succeeded(self, data: Path) -> bool:
        """Is everything that this node did for it well?"""
        found = [
            read_object(path).get("state")
            for path in data.glob("runs/*/attempts/*/node*/worker/reported.json")
        ]
        return bool(found) and set(found) <= SETTLED and set(found) == {"succeeded"}


def at_time_limit(end: TaskReport) -> TaskReport:
    """The end of a part that was told to stop because its job's time was nearly over."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return end.model_copy(
        update={
            "state": "failed",
            "reason": Reason.TIME_LIMIT,
            "message": f"The time limit of its Slurm job {job} was near, so it was told to save and end.",
            "next_step": "Resume it: it goes on from its last checkpoint, in a new job.",
        }
    )
