"""Slurm jobs between the gateways, the nodes of the jobs, and the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dashboard.clock import AnchoredTime
from dashboard.json_responses import document
from dashboard.live.hub import Hub
from dashboard.security.keys.token_files import Credentials
from db.engine import Store
from db.exceptions import NotOwner
from db.slurm import slurm_jobs
from db.watched import guests
from domain.messages import JobReport
from domain.watching.guests import is_guest

log = logging.getLogger("rankzero")


class SlurmJobs:
    """The service's functions for attempts whose devices Slurm allocates."""

    def __init__(
        self,
        store: Store,
        clock: AnchoredTime,
        hub: Hub,
        credentials: Credentials,
        task_changed: Callable[[int], None],
    ) -> None:
        """`task_changed` notifies the viewers of an attempt's run; it takes the attempt's fencing token."""
        self._store, self._clock, self._hub = store, clock, hub
        self._credentials, self._task_changed = credentials, task_changed
        self._pools: dict[str, str] = {}

    def give_out(self) -> None:
        """Give gateways the attempts that need a job."""
        if slurm_jobs.assign_gateways(self._store, self._clock()):
            self._hub.desired_state_changed()

    def desired_state(self, node_id: str) -> dict[str, Any]:
        """The additional desired state of gateways, jobs' nodes and guests; empty for all other nodes."""
        pool = self._pool(node_id)
        if not pool:
            return {}
        if is_guest(pool):
            return {"leave": not guests.has_to_do(self._store, node_id)}
        if pool == slurm_jobs.GATEWAY:
            jobs = slurm_jobs.job_requests(self._store, node_id, self._credentials.job_secret)
            return {"jobs": document(jobs)}
        return {"leave": not slurm_jobs.is_live(self._store, int(pool.partition(":")[2]))}

    def check_pool(self, pool: str, job: int | None, node_id: str | None) -> None:
        """Raises NotOwner unless a worker with this job's secret, or known as this node, may join the pool."""
        if node_id is not None:
            if pool != self._pool(node_id):
                raise NotOwner(
                    "A node stays in the pool that it joined: start the worker with a separate --data directory."
                )
            return
        if job is None and (not pool or pool == slurm_jobs.GATEWAY):
            return
        if is_guest(pool):
            raise NotOwner("A guest joins with the token that it was given with its place in a run.")
        if job is None or pool != slurm_jobs.pool_of(job):
            raise NotOwner("The secret of a Slurm job is valid only for the workers of that job.")
        if not slurm_jobs.is_live(self._store, job):
            raise NotOwner("The attempt that this Slurm job was submitted for has ended.")

    def reported(self, gateway_id: str, fence: int, job_report: JobReport) -> None:
        """Take a gateway's report on a job. Raises Superseded."""
        run_id = slurm_jobs.reported(self._store, gateway_id, fence, job_report, self._clock())
        if run_id is None:
            return
        log.info("run %s: Slurm job %s is %s %s", run_id, job_report.job_id, job_report.state, job_report.reason)
        self._task_changed(fence)

    def _pool(self, node_id: str) -> str:
        """The node's pool, cached: it never changes while the worker lives, and every poll needs it."""
        if node_id not in self._pools:
            self._pools[node_id] = slurm_jobs.pool_of_node(self._store, node_id)
        return self._pools[node_id]
