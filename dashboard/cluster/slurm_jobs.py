"""The jobs of a Slurm cluster, between gateways, the nodes of jobs, and the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dashboard.clock import Clock
from dashboard.json_responses import document
from dashboard.live.hub import Hub
from dashboard.security.token_files import Credentials
from db.engine import Store
from db.records.exceptions import NotOwner
from db.slurm import slurm_jobs
from domain.liveness import ALIVE_WITHIN_S
from domain.messages import JobReport

log = logging.getLogger("rankzero")


class SlurmJobs:
    """What the service does for attempts whose devices Slurm gives out."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        hub: Hub,
        credentials: Credentials,
        part_changed: Callable[[int], None],
    ) -> None:
        """`part_changed` tells whoever looks at the run of an attempt, named by its fence."""
        self._store, self._clock, self._hub = store, clock, hub
        self._credentials, self._part_changed = credentials, part_changed
        self._pools: dict[str, str] = {}

    def give_out(self) -> None:
        """Let gateways know of attempts that need a job."""
        if slurm_jobs.give_out(self._store, self._clock(), ALIVE_WITHIN_S):
            self._hub.wishes_changed()

    def wishes(self, node_id: str) -> dict[str, Any]:
        """What is told to gateways and to the nodes of jobs beside their assignments; to all others nothing."""
        pool = self._pool(node_id)
        if not pool:
            return {}
        if pool == slurm_jobs.GATEWAY:
            wished = slurm_jobs.wishes(self._store, node_id, self._credentials.job_secret)
            return {"jobs": document(wished)}
        return {"leave": not slurm_jobs.is_live(self._store, int(pool.partition(":")[2]))}

    def check_pool(self, pool: str, job: int | None, node_id: str | None) -> None:
        """Raises NotYours unless a worker with this secret, or that is known as this node, may join this pool."""
        if node_id is not None:
            if pool != self._pool(node_id):
                raise NotOwner(
                    "A node stays in the pool that it joined: start its worker on a --data of its own."
                )
            return
        if job is None and (not pool or pool == slurm_jobs.GATEWAY):
            return
        if job is None or pool != slurm_jobs.pool_of(job):
            raise NotOwner("The secret of a Slurm job is good for the workers of that job, and they for it.")
        if not slurm_jobs.is_live(self._store, job):
            raise NotOwner("The attempt that this Slurm job was submitted for has ended.")

    def reported(self, gateway_id: str, fence: int, said: JobReport) -> None:
        """What Slurm says of a job. Raises db.progress.Superseded."""
        run_id = slurm_jobs.reported(self._store, gateway_id, fence, said, self._clock())
        if run_id is None:
            return
        log.info("run %s: Slurm job %s is %s %s", run_id, said.job_id, said.state, said.reason)
        self._part_changed(fence)

    def _pool(self, node_id: str) -> str:
        """A node's pool never changes while its worker lives; asked with each of its polls."""
        if node_id not in self._pools:
            self._pools[node_id] = slurm_jobs.pool_of_node(self._store, node_id)
        return self._pools[node_id]
