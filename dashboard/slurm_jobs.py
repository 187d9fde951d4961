"""The jobs of a Slurm cluster, between gateways, the nodes of jobs, and the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dashboard.documents import document
from db import jobs
from db.hosts import ALIVE_WITHIN_S
from db.progress import NotYours
from db.spec import RunSpec
from db.states import JobReport
from db.views import NodeView
from worker.slurm.script import Place, Submission, submission

if TYPE_CHECKING:
    from dashboard.service import Service

log = logging.getLogger("rankzero")


class SlurmJobs:
    """What the service does for attempts whose devices Slurm gives out."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pools: dict[str, str] = {}

    def give_out(self) -> None:
        """Let gateways know of attempts that need a job."""
        if jobs.give_out(self._service.store, self._service.clock(), ALIVE_WITHIN_S):
            self._service.hub.wishes_changed()

    def wishes(self, node_id: str) -> dict[str, Any]:
        """What is told to gateways and to the nodes of jobs beside their assignments; to all others nothing."""
        pool = self._pool(node_id)
        if not pool:
            return {}
        store = self._service.store
        if pool == jobs.GATEWAY:
            wished = jobs.wishes(store, node_id, self._service.credentials.job_secret)
            return {"jobs": document(wished)}
        return {"leave": not jobs.is_live(store, int(pool.partition(":")[2]))}

    def check_pool(self, pool: str, job: int | None, node_id: str | None) -> None:
        """Raises NotYours unless a worker with this secret, or that is known as this node, may join this pool."""
        if node_id is not None:
            if pool != self._pool(node_id):
                raise NotYours(
                    "A node stays in the pool that it joined: start its worker on a --data of its own."
                )
            return
        if job is None and (not pool or pool == jobs.GATEWAY):
            return
        if job is None or pool != jobs.pool_of(job):
            raise NotYours("The secret of a Slurm job is good for the workers of that job, and they for it.")
        if not jobs.is_live(self._service.store, job):
            raise NotYours("The attempt that this Slurm job was submitted for has ended.")

    def reported(self, gateway_id: str, fence: int, said: JobReport) -> None:
        """What Slurm says of a job. Raises db.progress.Superseded."""
        run_id = jobs.reported(self._service.store, gateway_id, fence, said, self._service.clock())
        if run_id is None:
            return
        log.info("run %s: Slurm job %s is %s %s", run_id, said.job_id, said.state, said.reason)
        self._service.part_changed(fence)

    def _pool(self, node_id: str) -> str:
        """A node's pool never changes while its worker lives; asked with each of its polls."""
        if node_id not in self._pools:
            self._pools[node_id] = jobs.pool_of_node(self._service.store, node_id)
        return self._pools[node_id]


def job_of(spec: RunSpec, nodes: Sequence[NodeView]) -> Submission:
    """The job that the gateway would submit; words stand in for the places of one that has not joined."""
    gateway = next((node.info.get("slurm") for node in nodes if node.pool == jobs.GATEWAY), None)
    told: dict[str, Any] = gateway or {}
    places = told.get("place") or {
        name: f"<{name}>" for name in ("server", "data", "output", "python", "training_python")
    }
    partitions = told.get("partitions", [])
    chosen = spec.slurm.partition or next((each["name"] for each in partitions if each["is_default"]), None)
    has_gpus = any(each["gpus_per_node"] > 0 for each in partitions if each["name"] == chosen)
    return submission(spec, "<run>", 1, 0, Place(**places), has_gpus)
