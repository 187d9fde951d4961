"""The supervisor of a watched command, in virtual time: it looks on, and does what Stop says."""

from __future__ import annotations

import json
import os
import signal

import pytest

from domain.watching.joins import joined_by
from tests.virtual_time import VirtualTime
from tests.worker.fake_machine import FakeMachine
from tests.worker.node_under_test import delete
from worker.attempt.supervision import was_started
from worker.node.run_files import existing_files
from worker.watched.existing_files import remember_files_before
from worker.watched.folder import Watched
from worker.watched.front import launch_document

TORCHRUN = ("torchrun", "--nproc-per-node=2", "train.py")
PLAIN = ("python", "train.py")


class WatchedCommand:
    """A command under supervision; `launch`: what its launch.json has beside."""

    def __init__(self, machine, attempt, program, env=None, command=TORCHRUN, **launch) -> None:
        self.attempt = attempt
        machine.programs["train.py"] = program
        join = joined_by(env or {}, command, None, "host")
        described = Watched("w" * 10, "r" * 10, [*command], str(attempt.parent), "host", "ada", 1, 0.0)
        (attempt / "logs").mkdir(parents=True)
        (attempt / "probe").mkdir()
        (attempt / "launch.json").write_text(json.dumps(launch_document(attempt, described, join) | launch))
        machine.spawn(attempt, "r" * 10, 1, {})

    @property
    def state(self):
        return json.loads((self.attempt / "supervisor.json").read_text())

    def note_rank(self, rank: int, pid: int) -> None:
        (self.attempt / "probe" / f"{pid}.jsonl").write_text(json.dumps({"rank": rank, "pid": pid}) + "\n")


@pytest.fixture
def virtual_time():
    with VirtualTime() as virtual:
        yield virtual


@pytest.fixture
def machine(virtual_time):
    return FakeMachine(virtual_time)


def sleeps(process):
    process.sleep(100.0)


def test_ranks_are_recorded_as_they_come_and_when_torchrun_replaces_them(virtual_time, machine, tmp_path):
    watched = WatchedCommand(machine, tmp_path / "attempt", sleeps)
    virtual_time.advance(5.0)
    assert watched.state["state"] == "starting"
    watched.note_rank(1, 501)
    virtual_time.advance(2.0)
    assert (watched.state["state"], watched.state["ranks"]) == ("running", {"1": 501})
    watched.note_rank(0, 500)
    virtual_time.advance(2.0)
    assert watched.state["ranks"] == {"0": 500, "1": 501}
    watched.note_rank(0, 600)
    os.utime(tmp_path / "attempt/probe/500.jsonl", (1.0, 1.0))  # the newer file counts
    virtual_time.advance(2.0)
    assert watched.state["ranks"] == {"0": 600, "1": 501}


def test_a_script_without_ranks_runs_from_its_first_output_on(virtual_time, machine, tmp_path):
    def prints_later(process):
        process.sleep(10.0)
        process.print("hello")
        process.sleep(10.0)

    watched = WatchedCommand(machine, tmp_path / "attempt", prints_later, command=PLAIN)
    virtual_time.advance(9.0)
    assert watched.state["running_at"] is None
    virtual_time.advance(3.0)
    assert watched.state["state"] == "running"


def test_the_second_node_has_its_own_ranks_in_the_names_of_its_logs(virtual_time, machine, tmp_path):
    node = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    watched = WatchedCommand(machine, tmp_path / "attempt", sleeps, env=node, command=PLAIN)
    virtual_time.advance(1.0)
    assert sorted(path.name for path in (watched.attempt / "logs").iterdir()) == ["rank1.err", "rank1.out"]
    assert was_started(watched.attempt)
    env = json.loads((watched.attempt / "launch.json").read_text())["env"]
    assert (env["RANKZERO_NODE_RANK"], env["RANKZERO_ATTEMPT"]) == ("1", "1")


def test_ranks_that_share_a_terminal_have_logs_of_their_own_beside_that_of_their_launcher(
    virtual_time, machine, tmp_path
):
    watched = WatchedCommand(machine, tmp_path / "attempt", sleeps)
    virtual_time.advance(1.0)
    assert sorted(path.name for path in (watched.attempt / "logs").iterdir()) == ["launcher.err", "launcher.out"]
    assert was_started(watched.attempt)
    launch = json.loads((watched.attempt / "launch.json").read_text())
    assert launch["launcher"] == "torchrun"
    assert launch["env"]["RANKZERO_RANK_LOGS"] == str(watched.attempt / "logs")
    assert launch["env"]["TORCHELASTIC_ERROR_FILE"] == str(watched.attempt / "error.json")


def test_a_stop_is_sigterm_and_after_the_grace_the_end(virtual_time, machine, tmp_path):
    def stubborn(process):
        process.handle(signal.SIGTERM)
        process.sleep(1000.0)

    watched = WatchedCommand(machine, tmp_path / "attempt", stubborn)
    virtual_time.advance(1.0)
    (watched.attempt / "stop").write_text("20")
    virtual_time.advance(15.0)
    assert watched.state["state"] == "stopping"
    virtual_time.advance(10.0)
    assert (watched.state["state"], watched.state["signal"]) == ("ended", "SIGKILL")


def test_nothing_stops_what_is_only_looked_at(virtual_time, machine, tmp_path):
    watched = WatchedCommand(machine, tmp_path / "attempt", sleeps, look_only=True)
    virtual_time.advance(1.0)
    (watched.attempt / "stop").write_text("0")
    virtual_time.advance(150.0)
    assert (watched.state["exit_code"], watched.state["stop_requested_at"]) == (0, None)


def test_a_deleted_folder_ends_nothing(virtual_time, machine, tmp_path):
    ends = []

    def trains(process):
        process.sleep(50.0)
        ends.append(process.wall())

    watched = WatchedCommand(machine, tmp_path / "attempt", trains)
    virtual_time.advance(1.0)
    delete(watched.attempt)
    virtual_time.run_until(lambda: ends and not machine.living, 60.0)


def test_what_the_command_leaves_in_the_background_goes_on(virtual_time, machine, tmp_path):
    watched = WatchedCommand(
        machine, tmp_path / "attempt", lambda process: machine.start(sleeps, env=process.env) and None
    )
    virtual_time.advance(5.0)
    assert watched.state["state"] == "ended"
    assert len(machine.living) == 1


def test_files_from_before_the_start_are_not_the_runs(tmp_path):
    (tmp_path / "old.pt").write_bytes(b"old")
    (tmp_path / "notes.txt").write_text("no checkpoint")
    attempt = tmp_path / ".attempt"
    attempt.mkdir()
    started_at = (tmp_path / "old.pt").stat().st_ctime + 1e-6
    new = tmp_path / "new.pt"
    while not new.exists() or new.stat().st_ctime < started_at:
        new.write_bytes(b"new")
    remember_files_before(attempt, tmp_path, started_at)
    path = attempt / "worker/existing.json"
    assert [*existing_files(path)] == [str(tmp_path / "old.pt")]
    assert path.stat().st_mtime == pytest.approx(started_at)
    (tmp_path / "old.pt").touch()
    remember_files_before(attempt, tmp_path, started_at)  # as a companion that was started again
    assert [*existing_files(path)] == [str(tmp_path / "old.pt")]
