"""The gateway's turns: one job for each attempt, whatever is lost, late or killed in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.assignments import DesiredJob
from domain.messages import JobReport
from domain.slurm import GatewayPaths
from domain.spec import RunSpec
from worker.session.failures import AttemptSuperseded, ServerAway
from worker.slurm.commands import JobRefused, SlurmAway
from worker.slurm.gateway import Gateway


class FakeCluster:
    """Slurm in memory."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, JobReport]] = {}
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.secrets: list[str] = []
        self.trouble: Exception | None = None
        self.dies_after_submitting = False

    def submit(self, wanted, secret):
        if self.trouble:
            raise self.trouble
        job_id = str(len(self.submitted) + 1)
        name = next(word for word in wanted.argv if word.startswith("--job-name=")).partition("=")[2]
        self.submitted.append(name)
        self.secrets.append(secret)
        self.excluded = [word for word in wanted.argv if word.startswith("--exclude")]
        self.known[job_id] = (name, JobReport(job_id=job_id, state="PENDING", reason="Resources"))
        if self.dies_after_submitting:
            raise KeyboardInterrupt
        return job_id

    def node_names(self):
        return ["n0", "n1"]

    def jobs(self):
        if isinstance(self.trouble, SlurmAway):
            raise self.trouble
        return {job_id: (name, said.model_copy()) for job_id, (name, said) in self.known.items()}

    def exit_code(self, job_id):
        return "1"

    def cancel(self, job_id):
        self.cancelled.append(job_id)
        self.becomes(job_id, "CANCELLED")

    def becomes(self, job_id, state, **more):
        name, _ = self.known[job_id]
        self.known[job_id] = (name, JobReport(job_id=job_id, state=state, **more))


class FakeServer:
    """What is told of jobs."""

    def __init__(self) -> None:
        self.reports: list[tuple[int, str, str]] = []
        self.last: JobReport | None = None
        self.trouble: Exception | None = None

    def report_job(self, fence, report):
        if self.trouble:
            raise self.trouble
        self.reports.append((fence, report.job_id, report.state))
        self.last = report


@pytest.fixture
def site(tmp_path: Path):
    return Site(tmp_path)


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster, self.server = FakeCluster(), FakeServer()
        self.gateway = self.started_again()

    def started_again(self):
        place = GatewayPaths("http://here", "/scratch", str(self.folder / "jobs data"), "python", "python")
        self.gateway = Gateway(self.server, self.cluster, self.folder / "jobs", place, frozenset())
        return self.gateway

    def desire(self, *actions: str, grace_s: float = 30.0, exclude: tuple[str, ...] = ()) -> None:
        spec = RunSpec(target="t", pool="slurm")
        self.gateway.set_desired_jobs(
            [
                DesiredJob(
                    run_id="k3v9x0qd2m", attempt=fence, fence=fence, action=action, spec=spec, secret=f"s{fence}",
                    grace_s=grace_s, exclude=exclude,
                )
                for fence, action in enumerate(actions, 1)
            ]
        )  # fmt: skip


def test_each_attempt_gets_one_job_and_what_becomes_of_it_is_told_once(site: Site):
    site.desire("run", "run")
    for now in range(4):
        site.gateway.step(now)
    assert site.cluster.submitted == ["rankzero-k3v9x0qd2m-1", "rankzero-k3v9x0qd2m-2"]
    assert site.cluster.secrets == ["s1", "s2"]
    assert site.server.reports == [(1, "1", "PENDING"), (2, "2", "PENDING")]
    site.cluster.becomes("1", "RUNNING", nodes="n0")
    site.gateway.step(5)
    assert site.server.reports[2:] == [(1, "1", "RUNNING")]


def test_a_node_in_quarantine_is_excluded_while_the_cluster_has_it(site: Site):
    site.desire("run", exclude=("n1", "gone"))
    site.gateway.step(0.0)
    assert site.cluster.excluded == ["--exclude=n1"]


def test_an_end_is_told_with_what_the_job_printed_and_the_job_is_not_submitted_again(site: Site):
    site.desire("run")
    site.gateway.step(0)
    (folder,) = (site.folder / "jobs data").iterdir()
    (folder / "job-1.log").write_text("line\n" * 50 + "sh: python: not found\n")
    site.cluster.becomes("1", "FAILED")
    for now in range(1, 4):
        site.gateway.step(now)
    assert site.server.reports[1:] == [(1, "1", "FAILED")]
    assert site.server.last.exit_code == "1" and site.server.last.output.endswith("line\nsh: python: not found")
    assert len(site.server.last.output.splitlines()) == 8
    assert len(site.cluster.submitted) == 1 and not list((site.folder / "jobs").glob("*.json"))
    site.desire()
    site.gateway.step(9)
    assert site.gateway.is_idle


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_job_of_a_younger_store_is_left_alone_by_a_restored_older_one(site: Site, is_restarted: bool):
    """The restored store lists no job, and refuses what it is told of this one."""
    site.gateway.store = "younger"
    site.desire("run")
    site.gateway.step(0)
    site.cluster.becomes("1", "RUNNING")
    gateway = site.started_again() if is_restarted else site.gateway
    gateway.store, site.server.trouble = "older", AttemptSuperseded("no such attempt")
    site.desire()
    for now in range(1, 90, 30):
        gateway.step(now)
    assert site.cluster.cancelled == [] and list((site.folder / "jobs").glob("*.json"))
    gateway.store = "younger"
    gateway.step(100)
    assert site.cluster.cancelled == ["1"]


def test_a_refused_job_is_told_in_slurms_words_and_not_tried_again(site: Site):
    site.cluster.trouble = JobRefused("Invalid account")
    site.desire("run")
    site.gateway.step(0)
    site.gateway.step(1)
    assert site.server.reports == [(1, None, "REFUSED")] and site.server.last.reason == "Invalid account"


def test_a_controller_that_is_away_is_asked_again(site: Site):
    site.cluster.trouble = SlurmAway("no answer")
    site.desire("run")
    site.gateway.step(0)
    assert site.server.reports == []
    site.cluster.trouble = None
    site.gateway.step(1)
    assert site.server.reports == [(1, "1", "PENDING")] and len(site.cluster.submitted) == 1


def test_a_gateway_killed_between_sbatch_and_its_note_finds_the_job_by_its_name(site: Site):
    site.cluster.dies_after_submitting = True
    site.desire("run")
    with pytest.raises(KeyboardInterrupt):
        site.gateway.step(0)
    assert json.loads((site.folder / "jobs" / "1.json").read_text())["job_id"] is None
    site.started_again()
    site.desire("run")
    site.gateway.step(1)
    assert len(site.cluster.submitted) == 1
    assert site.server.reports == [(1, "1", "PENDING")]


def test_gateway_repeats_a_report_that_the_server_missed(site: Site):
    site.server.trouble = ServerAway("gone")
    site.desire("run")
    with pytest.raises(ServerAway):
        site.gateway.step(0)
    site.cluster.becomes("1", "COMPLETED")
    with pytest.raises(ServerAway):
        site.gateway.step(1)
    site.server.trouble = None
    site.gateway.step(2)
    assert site.server.reports == [(1, "1", "COMPLETED")] and len(site.cluster.submitted) == 1


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_after_its_grace(site: Site):
    site.desire("run", "run")
    site.gateway.step(0)
    site.cluster.becomes("2", "RUNNING")
    site.gateway.step(1)
    site.desire("stop", "stop")
    site.gateway.step(10)
    assert site.cluster.cancelled == ["1"]
    site.gateway.step(39)
    assert site.cluster.cancelled == ["1"]
    site.gateway.step(40)
    assert site.cluster.cancelled == ["1", "2"]
    site.gateway.step(41)
    assert site.server.reports[-2:] == [(1, "1", "CANCELLED"), (2, "2", "CANCELLED")]


def test_an_attempt_that_was_stopped_before_its_job_was_submitted_gets_none(site: Site):
    site.desire("stop")
    site.gateway.step(0)
    site.gateway.step(1)
    assert site.cluster.submitted == [] and site.server.reports == [(1, None, "CANCELLED")]


def test_job_without_an_assignment_is_cancelled(site: Site):
    """Its run was deleted; but before the server has spoken once nothing is."""
    site.desire("run")
    site.gateway.step(0)
    site.started_again()
    site.gateway.step(1)
    assert site.cluster.cancelled == []
    site.server.trouble = AttemptSuperseded("no such attempt")
    site.desire()
    site.gateway.step(2)
    site.gateway.step(3)
    assert site.cluster.cancelled == ["1"] and site.gateway.is_idle


def test_a_job_that_slurm_does_not_know_any_more_is_over_but_not_at_the_first_look(site: Site):
    site.desire("run")
    site.gateway.step(0)
    known = site.cluster.known.pop("1")
    site.gateway.step(1)
    site.gateway.step(2)
    site.cluster.known["1"] = known
    site.gateway.step(3)
    assert site.server.reports == [(1, "1", "PENDING")]
    del site.cluster.known["1"]
    for now in range(4, 7):
        site.gateway.step(now)
    assert site.server.reports[-1] == (1, "1", "FORGOTTEN")


def test_a_stop_between_a_crash_and_sbatch_leaves_nothing_behind(site: Site):
    site.cluster.trouble = SlurmAway("no answer to sbatch")
    site.cluster.jobs = dict
    site.desire("run")
    site.gateway.step(0)
    assert list((site.folder / "jobs").glob("*.json"))
    site.desire("stop")
    site.gateway.step(1)
    assert site.server.reports == [(1, None, "CANCELLED")]
    site.desire()
    site.gateway.step(2)
    assert site.gateway.is_idle and not list((site.folder / "jobs").glob("*.json"))
