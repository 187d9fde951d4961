"""The Slurm job that a spec would become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from db.slurm import slurm_jobs
from domain.launch.slurm_script import GatewayPaths, Submission, submission
from domain.spec import RunSpec
from domain.views import NodeView


def job_of(spec: RunSpec, nodes: Sequence[NodeView]) -> Submission:
    """The job that the gateway would submit; words stand in for the places of one that has not joined."""
    gateway = next((node.info.get("slurm") for node in nodes if node.pool == slurm_jobs.GATEWAY), None)
    told: dict[str, Any] = gateway or {}
    places = told.get("place") or {
        name: f"<{name}>" for name in ("server", "data", "output", "python", "training_python")
    }
    partitions = told.get("partitions", [])
    chosen = spec.slurm.partition or next((each["name"] for each in partitions if each["is_default"]), None)
    has_gpus = any(each["gpus_per_node"] > 0 for each in partitions if each["name"] == chosen)
    return submission(spec, "<run>", 1, 0, GatewayPaths(**places), has_gpus)
