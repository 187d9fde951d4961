"""Jobs that a person submits to a real Slurm, watched: examples/anywhere/sbatch.sh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.product import Product, safely, wait_for
from tests.end_to_end.slurm import Slurm, why_not
from tests.end_to_end.watching import ANYWHERE, assert_nothing_is_left, environment, new_run, run_ids

pytestmark = pytest.mark.real

UNTIL_TOLD = Path(__file__).parent / "scripts" / "until_told.py"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if reason := why_not():
        pytest.skip(reason)
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.clean_up()


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    running = Product(tmp_path_factory.mktemp("site") / "data", has_worker=False)
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


@pytest.fixture
def job(slurm: Slurm, dashboard: Product, tmp_path: Path) -> Iterator[Job]:
    submitted = Job(slurm, dashboard, tmp_path)
    yield submitted
    slurm.ask("scancel", submitted.id)


class Job:
    """sbatch.sh with two tasks on one node, which train until they are told to end."""

    def __init__(self, slurm: Slurm, dashboard: Product, folder: Path) -> None:
        self.slurm, self.dashboard = slurm, dashboard
        self.release, self.output, self.own = folder / "told", folder / "job.log", folder / "own"
        before = run_ids(dashboard)
        env = environment(dashboard, self.own) | {"MASTER_ADDR": "127.0.0.1"}
        given = [f"--export={','.join(['ALL', *(f'{name}={value}' for name, value in env.items())])}"]
        given += ["--nodes=1", "--ntasks=2", f"--output={self.output}", "--open-mode=append", f"--chdir={folder}"]
        script = [str(ANYWHERE / "sbatch.sh"), str(UNTIL_TOLD), str(self.release)]
        self.id = slurm.ask("sbatch", "--parsable", *given, *script).strip()
        self.run_id = new_run(dashboard, before, self.text)

    def text(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def processes(self) -> list[psutil.Process]:
        """All that it has started, what watches it included."""
        own = str(self.own)
        return [p for p in psutil.process_iter() if safely(p.environ, {}).get("RANKZERO_DATA") == own]

    def assert_nothing_is_left(self) -> None:
        wait_for(lambda: not self.processes(), "every process of the job to be gone", explain=self.text)
        assert_nothing_is_left(self.own)


def test_a_requeued_job_is_the_next_attempt_of_its_run(dashboard: Product, slurm: Slurm, job: Job) -> None:
    """On another node: the first one takes the job again after two minutes only."""
    dashboard.wait_step(job.run_id, 5)
    node = slurm.ask("squeue", "-h", "-j", job.id, "-o", "%N").strip()
    slurm.ask("scontrol", "requeue", job.id)
    wait_for(lambda: slurm.state(job.id) == "PENDING", "the job to be in the queue again", explain=job.text)
    slurm.ask("scontrol", "update", f"JobId={job.id}", "StartTime=now", f"ExcNodeList={node}")
    wait_for(lambda: dashboard.run(job.run_id)["attempt"] == 2, "the next attempt", explain=job.text)
    dashboard.wait_state(job.run_id, "running")
    job.release.touch()
    ended = dashboard.wait_state(job.run_id)
    assert ended["state"] == "succeeded", (ended, job.text())
    first, second = dashboard.get(f"/api/runs/{job.run_id}/attempts")
    assert first["state"] in ("failed", "stopped") and second["state"] == "succeeded"
    assert [len(attempt["tasks"]) for attempt in (first, second)] == [2, 2]
    assert ended["world_size"] == 2
    steps = [step for step, _, _ in dashboard.get(f"/api/runs/{job.run_id}/metrics?name=train/loss")["train/loss"]]
    assert steps == list(range(1, len(steps) + 1))
    wait_for(lambda: slurm.state(job.id) == "COMPLETED", "the job to be completed", explain=job.text)
    job.assert_nothing_is_left()


@pytest.mark.long
def test_a_cancelled_job_ends_its_run(dashboard: Product, slurm: Slurm, job: Job) -> None:
    dashboard.wait_step(job.run_id, 5)
    slurm.ask("scancel", job.id)
    ended = dashboard.wait_state(job.run_id)
    assert (ended["state"], ended["attempt"]) == ("failed", 1), ended
    assert "SIGTERM" in ended["message"], ended
    wait_for(lambda: slurm.state(job.id) == "CANCELLED", "the job to be cancelled", explain=job.text)
    job.assert_nothing_is_left()


@pytest.mark.long
def test_a_stop_on_the_page_ends_the_tasks_of_the_job(dashboard: Product, slurm: Slurm, job: Job) -> None:
    dashboard.wait_step(job.run_id, 5)
    dashboard.request("POST", f"/api/runs/{job.run_id}/stop")
    assert dashboard.wait_state(job.run_id)["state"] == "stopped"
    wait_for(lambda: slurm.state(job.id) in ("FAILED", "CANCELLED"), "the job to end", explain=job.text)
    job.assert_nothing_is_left()
