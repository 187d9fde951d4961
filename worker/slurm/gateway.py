"""Reconciles the desired Slurm jobs with the jobs that Slurm has: exactly one per attempt."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from domain.assignments import DesiredJob
from domain.messages import JobReport
from domain.slurm import GatewayPaths, Submission, job_name, submission
from worker.node.regular_files import open_regular
from worker.node.state_files import read_object, write_whole
from worker.session.client import Client
from worker.session.failures import AttemptSuperseded, RequestRefused
from worker.slurm.commands import JobRefused, SlurmAway

log = logging.getLogger(__name__)
MISSED_QUERIES = 3
"""A job missing from this many consecutive queries has ended: Slurm has already forgotten it."""
OUTPUT_BYTES = 2000
OUTPUT_LINES = 8


class Cluster(Protocol):
    """The Slurm commands that the gateway uses."""

    def submit(self, submission: Submission, secret: str) -> str: ...
    def jobs(self) -> dict[str, tuple[str, JobReport]]: ...
    def exit_code(self, job_id: str) -> str: ...
    def cancel(self, job_id: str) -> None: ...
    def node_names(self) -> list[str]: ...


@dataclass
class TrackedJob:
    """A job of this gateway; stored on disk, so that the next gateway on this data continues with it."""

    fence: int
    name: str
    folder: str
    store: str = ""
    """The identity of the server's store that requested the job."""
    job_id: str | None = None
    """None while it is being submitted, or if the previous gateway ended during the submission."""
    reported: JobReport | None = None
    stopping_since: float | None = None
    missed: int = 0
    """Consecutive queries in which Slurm did not list it."""


class Gateway:
    """All jobs of one gateway. One thread calls `step` repeatedly."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        folder: Path,
        paths: GatewayPaths,
        gpu_partitions: frozenset[str],
    ) -> None:
        self._client, self._cluster, self._folder, self._paths = client, cluster, folder, paths
        self._gpu_partitions = gpu_partitions
        self._lock = threading.Lock()
        self._desired_jobs: list[DesiredJob] | None = None
        self._jobs = {job.fence: job for job in self._load_jobs()}
        self._ended: set[int] = set()
        """Fencing tokens of jobs whose end was reported; the desired state may be older than the report."""
        self._slurm_error = ""
        self.store = ""
        """The current identity of the server's store."""
        self.starts_new = True
        """False while the server has another protocol version: jobs continue, but none is submitted."""

    def set_desired_jobs(self, jobs: list[DesiredJob]) -> None:
        """Replace the desired jobs; thread-safe."""
        with self._lock:
            self._desired_jobs = jobs

    @property
    def is_idle(self) -> bool:
        """Whether no job is desired and none is left."""
        with self._lock:
            return not self._desired_jobs and not self._jobs

    def step(self, now: float) -> None:
        """Reconcile once. Passes ServerAway on; a cluster that does not answer is queried again in the next step."""
        with self._lock:
            desired_jobs = None if self._desired_jobs is None else {job.fence: job for job in self._desired_jobs}
        if not desired_jobs and not self._jobs:
            return
        try:
            self._reconcile(desired_jobs, now)
        except SlurmAway as error:
            if str(error) != self._slurm_error:
                log.warning("Slurm does not answer: %s", error)
            self._slurm_error = str(error)
        else:
            self._slurm_error = ""

    def _reconcile(self, desired_jobs: dict[int, DesiredJob] | None, now: float) -> None:
        self._ended &= set(desired_jobs or ())
        jobs = self._cluster.jobs()
        self._recover_job_ids(jobs)
        missing = [request for fence, request in (desired_jobs or {}).items() if self._has_no_job(fence)]
        for request in missing:
            if request.action == "run":
                if self.starts_new:
                    self._submit(request)
            else:
                self._report(request.fence, JobReport(state="CANCELLED", reason="it was never submitted"))
                self._forget(request.fence)
        jobs = self._cluster.jobs() if missing else jobs
        for job in list(self._jobs.values()):
            self._follow_job(job, jobs)
            if desired_jobs is None:
                continue
            desired = desired_jobs.get(job.fence)
            if desired is None and not self._is_unwanted(job):
                continue
            if desired is None or desired.action == "stop":
                self._stop_job(job, 0.0 if desired is None else desired.grace_s, now)

    def _is_unwanted(self, job: TrackedJob) -> bool:
        """Whether a job missing from the desired state may be ended: not if the list is outdated, nor if another store
        (or an older copy) merely does not know the job. Passes ServerAway on."""
        if job.store and job.store != self.store:
            return False
        try:
            self._client.report_job(job.fence, job.reported or JobReport(job_id=job.job_id, state="PENDING"))
        except (AttemptSuperseded, RequestRefused):
            return True
        return False

    def _has_no_job(self, fence: int) -> bool:
        job = self._jobs.get(fence)
        return fence not in self._ended and (job is None or job.job_id is None)

    def _submit(self, desired: DesiredJob) -> None:
        """Submit a job; it is recorded first, so that after a crash it can be found by its name."""
        spec, name = desired.spec, job_name(desired.run_id, desired.attempt)
        folder = f"{self._paths.output}/{name}"
        job = TrackedJob(desired.fence, name, folder, self.store)
        self._store(job)
        has_gpus = (spec.slurm.partition or "") in self._gpu_partitions
        exclude = self._known_nodes(desired.exclude)
        slurm_job = submission(spec, desired.run_id, desired.attempt, desired.fence, self._paths, has_gpus, exclude)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
            job.job_id = self._cluster.submit(slurm_job, desired.secret)
        except (JobRefused, OSError) as error:
            log.warning("%s was not submitted: %s", name, error)
            self._report_change(job, JobReport(state="REFUSED", reason=str(error)))
            return
        log.info("%s submitted as job %s", name, job.job_id)
        self._store(job)

    def _known_nodes(self, names: Sequence[str]) -> list[str]:
        """Return the nodes that the cluster has: sbatch refuses a job that excludes another."""
        if not names:
            return []
        node_names = set(self._cluster.node_names())
        return [name for name in names if name in node_names]

    def _recover_job_ids(self, jobs: dict[str, tuple[str, JobReport]]) -> None:
        """Identify by name the jobs that were submitted just before a gateway ended."""
        ids = {name: job_id for job_id, (name, _) in jobs.items()}
        for job in self._jobs.values():
            if job.job_id is None and job.name in ids:
                job.job_id = ids[job.name]
                log.info("%s found again as job %s", job.name, job.job_id)
                self._store(job)

    def _follow_job(self, job: TrackedJob, jobs: dict[str, tuple[str, JobReport]]) -> None:
        if job.job_id is None:
            return
        job.missed = 0 if job.job_id in jobs else job.missed + 1
        if 0 < job.missed < MISSED_QUERIES:
            return
        _, report = jobs.get(job.job_id, ("", JobReport(job_id=job.job_id, state="FORGOTTEN")))
        if report.has_ended:
            report.exit_code = self._cluster.exit_code(job.job_id)
            report.output = _output_tail(Path(job.folder) / f"job-{job.job_id}.log")
        self._report_change(job, report)

    def _report_change(self, job: TrackedJob, report: JobReport) -> None:
        if report != job.reported:
            self._report(job.fence, report)
            job.reported = report
        if report.has_ended:
            log.info("%s: job %s has ended: %s", job.name, job.job_id, report.state)
            self._forget(job.fence)

    def _report(self, fence: int, report: JobReport) -> None:
        try:
            self._client.report_job(fence, report)
        except (AttemptSuperseded, RequestRefused) as error:
            log.info("the server no longer accepts reports of attempt %d: %s", fence, error)
        if report.has_ended:
            self._ended.add(fence)

    def _stop_job(self, job: TrackedJob, grace_s: float, now: float) -> None:
        """Cancel a pending job at once, a running one after its grace: its workers may stop it themselves."""
        if job.job_id is None or job.fence not in self._jobs:
            return
        job.stopping_since = job.stopping_since or now
        is_waiting = job.reported is None or job.reported.state == "PENDING"
        if is_waiting or now - job.stopping_since >= grace_s:
            log.info("%s: job %s is cancelled", job.name, job.job_id)
            self._cluster.cancel(job.job_id)

    def _load_jobs(self) -> list[TrackedJob]:
        jobs = []
        for path in sorted(self._folder.glob("*.json")):
            record = read_object(path)
            with suppress(KeyError, TypeError, ValueError):
                job = TrackedJob(int(record["fence"]), record["name"], record["folder"], job_id=record["job_id"])
                job.store = record.get("store", "")
                jobs.append(job)
        return jobs

    def _store(self, job: TrackedJob) -> None:
        self._jobs[job.fence] = job
        record = {
            "fence": job.fence,
            "name": job.name,
            "folder": job.folder,
            "store": job.store,
            "job_id": job.job_id,
        }
        write_whole(self._folder / f"{job.fence}.json", json.dumps(record))

    def _forget(self, fence: int) -> None:
        self._jobs.pop(fence, None)
        (self._folder / f"{fence}.json").unlink(missing_ok=True)


def _output_tail(path: Path) -> str:
    """The last lines of a job's output; empty if the file cannot be read here."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, 2) - OUTPUT_BYTES))
            text = file.read(OUTPUT_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-OUTPUT_LINES:])
