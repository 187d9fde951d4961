"""Reconciles the jobs that the server wishes with those that Slurm has: one for each attempt, never two."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from domain.launch.slurm_script import GatewayPaths, Submission, job_name, submission
from domain.messages import JobReport
from domain.spec import JobWish
from worker.node.state_files import read_object, write_whole
from worker.session.client import Client
from worker.session.failures import AttemptSuperseded, RequestRefused
from worker.slurm.commands import JobRefused, SlurmAway

log = logging.getLogger(__name__)
MISSED_LOOKS = 3
"""A job that Slurm does not know so often in a row is over: nobody looked for longer than Slurm remembers."""
OUTPUT_BYTES = 2000
OUTPUT_LINES = 8


class Cluster(Protocol):
    """What the gateway needs of Slurm."""

    def submit(self, wanted: Submission, secret: str) -> str: ...
    def jobs(self) -> dict[str, tuple[str, JobReport]]: ...
    def exit_code(self, job_id: str) -> str: ...
    def cancel(self, job_id: str) -> None: ...


@dataclass
class Kept:
    """A job as far as this gateway brought it; on disk, so that the next gateway here goes on with it."""

    fence: int
    name: str
    folder: str
    store: str = ""
    """The identity of the server's store that wished for it."""
    job_id: str | None = None
    """None: it is just being submitted, or was when the gateway before this one ended."""
    told: JobReport | None = None
    stop_from: float | None = None
    missed: int = 0
    """Looks in a row at which Slurm did not know it."""


class Gateway:
    """All jobs of one gateway. `step` is called again and again by one thread."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        folder: Path,
        place: GatewayPaths,
        gpu_partitions: frozenset[str],
    ) -> None:
        self._client, self._cluster, self._folder, self._place = client, cluster, folder, place
        self._gpu_partitions = gpu_partitions
        self._lock = threading.Lock()
        self._wishes: list[JobWish] | None = None
        self._kept = {kept.fence: kept for kept in self._found()}
        self._over: set[int] = set()
        """Of these the server has heard the end; its list may be a moment old."""
        self._trouble = ""
        self.store = ""
        """The identity of the server's store now."""
        self.starts_new = True
        """False while the server speaks another protocol: jobs go on, none is submitted."""

    def take(self, wishes: list[JobWish]) -> None:
        """The newest complete list; may be called from another thread."""
        with self._lock:
            self._wishes = wishes

    @property
    def is_idle(self) -> bool:
        """Nothing is wished, and nothing is left of what was."""
        with self._lock:
            return not self._wishes and not self._kept

    def step(self, now: float) -> None:
        """One turn. ServerAway goes through; a cluster that does not answer is asked again at the next turn."""
        with self._lock:
            wishes = None if self._wishes is None else {wish.fence: wish for wish in self._wishes}
        if not wishes and not self._kept:
            return
        try:
            self._reconcile(wishes, now)
        except SlurmAway as error:
            if str(error) != self._trouble:
                log.warning("Slurm does not answer: %s", error)
            self._trouble = str(error)
        else:
            self._trouble = ""

    def _reconcile(self, wishes: dict[int, JobWish] | None, now: float) -> None:
        self._over &= set(wishes or ())
        jobs = self._cluster.jobs()
        self._recognise(jobs)
        unknown = [wish for fence, wish in (wishes or {}).items() if self._has_no_job(fence)]
        for wish in unknown:
            if wish.action == "run":
                if self.starts_new:
                    self._submit(wish)
            else:
                self._report(wish.fence, JobReport(state="CANCELLED", reason="it was never submitted"))
                self._forget(wish.fence)
        jobs = self._cluster.jobs() if unknown else jobs
        for kept in list(self._kept.values()):
            self._follow(kept, jobs)
            if wishes is None:
                continue
            wished = wishes.get(kept.fence)
            if wished is None and not self._is_unwanted(kept):
                continue
            if wished is None or wished.action == "stop":
                self._end(kept, 0.0 if wished is None else wished.grace_s, now)

    def _is_unwanted(self, kept: Kept) -> bool:
        """Whether a job that the list lacks may be ended: not where the list is late, nor where the store is an older
        copy or another one, which only does not know it. ServerAway goes through."""
        if kept.store and kept.store != self.store:
            return False
        try:
            self._client.report_job(kept.fence, kept.told or JobReport(job_id=kept.job_id, state="PENDING"))
        except (AttemptSuperseded, RequestRefused):
            return True
        return False

    def _has_no_job(self, fence: int) -> bool:
        kept = self._kept.get(fence)
        return fence not in self._over and (kept is None or kept.job_id is None)

    def _submit(self, wish: JobWish) -> None:
        """What is to be done is written down first: after a crash in between the job is found by its name."""
        spec, name = wish.spec, job_name(wish.run_id, wish.attempt)
        folder = f"{self._place.output}/{name}"
        kept = Kept(wish.fence, name, folder, self.store)
        self._keep(kept)
        has_gpus = (spec.slurm.partition or "") in self._gpu_partitions
        wanted = submission(spec, wish.run_id, wish.attempt, wish.fence, self._place, has_gpus)
        try:
            Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
            kept.job_id = self._cluster.submit(wanted, wish.secret)
        except (JobRefused, OSError) as error:
            log.warning("%s was not submitted: %s", name, error)
            self._tell(kept, JobReport(state="REFUSED", reason=str(error)))
            return
        log.info("%s submitted as job %s", name, kept.job_id)
        self._keep(kept)

    def _recognise(self, jobs: dict[str, tuple[str, JobReport]]) -> None:
        """Jobs that were submitted just before a gateway ended."""
        ids = {name: job_id for job_id, (name, _) in jobs.items()}
        for kept in self._kept.values():
            if kept.job_id is None and kept.name in ids:
                kept.job_id = ids[kept.name]
                log.info("%s found again as job %s", kept.name, kept.job_id)
                self._keep(kept)

    def _follow(self, kept: Kept, jobs: dict[str, tuple[str, JobReport]]) -> None:
        if kept.job_id is None:
            return
        kept.missed = 0 if kept.job_id in jobs else kept.missed + 1
        if 0 < kept.missed < MISSED_LOOKS:
            return
        _, said = jobs.get(kept.job_id, ("", JobReport(job_id=kept.job_id, state="FORGOTTEN")))
        if said.has_ended:
            said.exit_code = self._cluster.exit_code(kept.job_id)
            said.output = _end_of(Path(kept.folder) / f"job-{kept.job_id}.log")
        self._tell(kept, said)

    def _tell(self, kept: Kept, said: JobReport) -> None:
        if said != kept.told:
            self._report(kept.fence, said)
            kept.told = said
        if said.has_ended:
            log.info("%s: job %s has ended: %s", kept.name, kept.job_id, said.state)
            self._forget(kept.fence)

    def _report(self, fence: int, said: JobReport) -> None:
        try:
            self._client.report_job(fence, said)
        except (AttemptSuperseded, RequestRefused) as error:
            log.info("the server does not want attempt %d any more: %s", fence, error)
        if said.has_ended:
            self._over.add(fence)

    def _end(self, kept: Kept, grace_s: float, now: float) -> None:
        """One that waits at once; one that runs may end by itself first, and does when its workers hear of it."""
        if kept.job_id is None or kept.fence not in self._kept:
            return
        kept.stop_from = kept.stop_from or now
        is_waiting = kept.told is None or kept.told.state == "PENDING"
        if is_waiting or now - kept.stop_from >= grace_s:
            log.info("%s: job %s is cancelled", kept.name, kept.job_id)
            self._cluster.cancel(kept.job_id)

    def _found(self) -> list[Kept]:
        found = []
        for path in sorted(self._folder.glob("*.json")):
            note = read_object(path)
            with suppress(KeyError, TypeError, ValueError):
                kept = Kept(int(note["fence"]), note["name"], note["folder"], job_id=note["job_id"])
                kept.store = note.get("store", "")
                found.append(kept)
        return found

    def _keep(self, kept: Kept) -> None:
        self._kept[kept.fence] = kept
        note = {
            "fence": kept.fence,
            "name": kept.name,
            "folder": kept.folder,
            "store": kept.store,
            "job_id": kept.job_id,
        }
        write_whole(self._folder / f"{kept.fence}.json", json.dumps(note))

    def _forget(self, fence: int) -> None:
        self._kept.pop(fence, None)
        (self._folder / f"{fence}.json").unlink(missing_ok=True)


def _end_of(path: Path) -> str:
    """The last lines a job printed, as far as they can be seen from here."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - OUTPUT_BYTES))
            text = file.read(OUTPUT_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-OUTPUT_LINES:])
