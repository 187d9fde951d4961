"""What sbatch is given for an attempt."""

from __future__ import annotations

import shlex

import pytest

from domain.slurm import GatewayPaths, seconds_of, submission
from domain.spec import RunSpec

PLACE = GatewayPaths(
    "http://gpu-0:8765",
    "/scratch/my runs",
    "/home/me/gateway",
    "/home/me/rankzero/bin/python",
    "/opt/py/bin/python",
)


def job(has_gpus: bool = True, **spec):
    return submission(RunSpec(target="t", pool="slurm", **spec), "k3v9x0qd2m", 2, 77, PLACE, has_gpus)


def test_nodes_in_quarantine_are_excluded_beside_those_of_the_run():
    def excluded(*options: str, names: tuple[str, ...] = ("n1", "n4")) -> list[str]:
        spec = RunSpec(target="t", pool="slurm", slurm={"options": [*options]})
        argv = submission(spec, "k3v9x0qd2m", 2, 77, PLACE, True, names).argv
        return [word for word in argv if word.startswith("--exclude=")][-1:]

    assert excluded() == ["--exclude=n1,n4"]
    assert excluded("--exclude=n[7-9]") == ["--exclude=n[7-9],n1,n4"]
    assert excluded("--exclude=n7", names=()) == ["--exclude=n7"] and excluded(names=()) == []


def test_a_job_has_one_task_on_each_node_and_its_gpus():
    argv = job(nodes=2, gpus_per_node=4, slurm={"partition": "gpu", "account": "lab", "time_limit": "2-12"}).argv
    assert argv[:2] == ["sbatch", "--parsable"]
    assert {
        "--partition=gpu", "--account=lab", "--time=2-12", "--nodes=2", "--ntasks-per-node=1",
        "--gpus-per-node=4", "--job-name=rankzero-k3v9x0qd2m-2", "--no-requeue", "--export=ALL", "--signal=URG@90",
    } <= set(argv)  # fmt: skip
    assert "--output=/home/me/gateway/rankzero-k3v9x0qd2m-2/job-%j.log" in argv


def test_open_choices_are_left_to_the_cluster():
    said = " ".join(job().argv)
    assert "--partition" not in said and "--account" not in said and "--time=" not in said


def test_without_gpus_each_rank_has_a_core_and_own_options_stand_instead():
    assert "--cpus-per-task=3" in job(has_gpus=False, gpus_per_node=3).argv
    own = job(has_gpus=False, gpus_per_node=3, slurm={"options": ["--cpus-per-task=12"]}).argv
    assert [word for word in own if "cpus" in word] == ["--cpus-per-task=12"]
    own = job(gpus_per_node=3, slurm={"options": ["--gres=gpu:a100:3"]}).argv
    assert [word for word in own if "gpu" in word] == ["--gres=gpu:a100:3"]


def test_the_script_starts_a_worker_for_this_attempt_alone_and_names_no_secret():
    script = job(nodes=3, gpus_per_node=2).script
    assert script.startswith("#!/bin/sh\n")
    words = shlex.split(script.splitlines()[-1])
    assert words[:3] == ["exec", "srun", "--nodes=3"] and "--kill-on-bad-exit=0" in words
    worker = words[words.index(PLACE.python) :]
    assert worker[1:4] == ["-P", "-m", "worker"]
    options = dict(zip(worker[4::2], worker[5::2], strict=True))
    assert options == {
        "--only-attempt": "77",
        "--server": PLACE.server,
        "--data": "/scratch/my runs/rankzero-k3v9x0qd2m-2",
        "--slots": "2",
        "--python": PLACE.training_python,
    }
    assert "TOKEN" not in script


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("12:00:00", 43_200),
        ("2-12", 216_000),
        ("1-0:30", 88_200),
        ("1-1:1:1", 90_061),
    ],
)
def test_times_are_read_as_sbatch_reads_them(limit: str, seconds: float):
    assert seconds_of(limit) == seconds


@pytest.mark.parametrize(
    ("limit", "warning"),
    [(None, "URG@90"), ("1", None), ("2", "URG@30"), ("6:00", "URG@90"), ("0", "URG@90")],
)
def test_a_job_is_warned_before_its_time_is_over(limit: str | None, warning: str | None):
    """A limit of 0 is none; a job too short for a warning gets none."""
    signals = [word for word in job(slurm={"time_limit": limit}).argv if word.startswith("--signal")]
    assert signals == ([f"--signal={warning}"] if warning else [])
