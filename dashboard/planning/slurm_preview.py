"""Preview the Slurm job of a spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from db.slurm import slurm_jobs
from domain.launch.slurm_script import GatewayPaths, Submission, submission
from domain.spec import RunSpec
from domain.views import NodeView


def job_of(spec: RunSpec, nodes: Sequence[NodeView]) -> Submission:
    """Return the job that the gateway would submit, with placeholder paths where no gateway has joined."""
    gateway = next((node.info.get("slurm") for node in nodes if node.pool == slurm_jobs.GATEWAY), None)
    slurm_info: dict[str, Any] = gateway or {}
    paths = slurm_info.get("place") or {
        name: f"<{name}>" for name in ("server", "data", "output", "python", "training_python")
    }
    partitions = slurm_info.get("partitions", [])
    chosen = spec.slurm.partition or next(
        (partition["name"] for partition in partitions if partition["is_default"]), None
    )
    has_gpus = any(partition["gpus_per_node"] > 0 for partition in partitions if partition["name"] == chosen)
    return submission(spec, "<run>", 1, 0, GatewayPaths(**paths), has_gpus)
