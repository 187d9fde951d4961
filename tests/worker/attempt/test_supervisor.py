"""One attempt's processes: started once, watched, stopped in time, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from tests.worker.node_under_test import delete
from worker.attempt import supervision, supervisor
from worker.node import processes

pytestmark = pytest.mark.real

PYTHON = sys.executable
TORCHRUN = str(Path(PYTHON).parent / "torchrun")


LIMIT_S = 300.0
"""Less than any grace here but the shortest: who ends within it was not left its grace."""


def until(condition, limit_s=LIMIT_S):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {limit_s} s")


class Attempt:
    """A supervisor on a private directory, and what it writes there."""

    def __init__(self, folder: Path, argv, launcher="python", ranks=1, grace_s=600.0, env=None) -> None:
        self.dir = folder / "node0"
        self.work = self.dir / "work"
        self.work.mkdir(parents=True)
        self.run_id = uuid.uuid4().hex[:10]
        variables = {"RANKZERO_RUN_ID": self.run_id, "RANKZERO_ATTEMPT": "1", "PYTHONUNBUFFERED": "1"}
        order = {
            "argv": argv, "env": variables | (env or {}), "cwd": str(self.work), "grace_s": grace_s,
            "launcher": launcher, "first_rank": 0, "processes": ranks,
        }  # fmt: skip
        (self.dir / "launch.json").write_text(json.dumps(order))
        self.process = self.start()

    def start(self):
        command = [PYTHON, "-P", "-m", "worker.attempt.supervisor", "--data", "unused"]
        return subprocess.Popen([*command, "--attempt", f"{self.run_id}/1", str(self.dir)], start_new_session=True)

    @property
    def state(self):
        with suppress(OSError):
            return json.loads((self.dir / "supervisor.json").read_text())
        return {"state": None}

    def reached(self, *names):
        return until(lambda: self.state["state"] in names and self.state)

    def ended(self):
        assert self.process.wait(LIMIT_S) == 0
        assert self.state["state"] == "ended"
        assert processes.of_attempt(self.run_id, 1, 0) == []
        return self.state

    def log(self, name):
        return (self.dir / "logs" / name).read_text()

    def ready(self):
        until(lambda: (self.work / "ready").exists())

    def let_end(self):
        self.ready()  # the supervisor may have seen its process before the first command was carried out
        (self.work / "ready").unlink()


@pytest.fixture
def start(tmp_path):
    attempts = []

    def begin(*args, **kwargs):
        attempts.append(Attempt(tmp_path / str(len(attempts)), *args, **kwargs))
        return attempts[-1]

    yield begin
    for attempt in attempts:
        attempt.process.kill()
        attempt.process.wait()
        processes.kill_all(lambda name=attempt.run_id: processes.of_attempt(name, 1, 0), 60)


def shell(script):
    return ["sh", "-c", script]


def test_a_command_that_ends_well_is_seen_from_start_to_end(start):
    attempt = start(shell("echo out; echo err >&2; touch ready; while [ -e ready ]; do sleep 0.05; done"))
    state = attempt.reached("running")
    assert state["pid"] == attempt.process.pid
    assert state["boot_id"] == processes.boot_id()
    assert processes.find(state["pid"]).start_ticks == state["start_ticks"]
    attempt.let_end()
    state = attempt.ended()
    assert (state["exit_code"], state["signal"], state["killed"]) == (0, None, [])
    assert state["started_at"] <= state["running_at"] <= state["ended_at"]
    assert (attempt.log("rank0.out"), attempt.log("rank0.err")) == ("out\n", "err\n")


def test_an_exit_code_is_kept(start):
    state = start(shell("exit 7")).ended()
    assert (state["exit_code"], state["signal"]) == (7, None)


def test_a_signal_from_elsewhere_is_named(start):
    state = start(shell("kill -9 $$")).ended()
    assert (state["exit_code"], state["signal"], state["killed"]) == (-9, "SIGKILL", [])


def test_a_command_that_does_not_exist_is_a_launch_error(start):
    state = start(["/nowhere/python"]).ended()
    assert "/nowhere/python" in state["launch_error"]
    assert state["exit_code"] is None


def test_sigterm_lets_the_command_leave_cleanly(start):
    attempt = start(shell("trap 'echo saved; exit 0' TERM; touch ready; while :; do sleep 0.05; done"))
    attempt.ready()
    attempt.process.terminate()
    state = attempt.ended()
    assert state["stop_requested_at"] is not None
    assert (state["exit_code"], state["killed"]) == (0, [])
    assert attempt.log("rank0.out") == "saved\n"


def test_who_ignores_sigterm_is_killed_after_the_grace(start):
    attempt = start(shell("trap '' TERM; touch ready; while :; do sleep 0.05; done"), grace_s=0.5)
    attempt.ready()
    asked_at = time.monotonic()
    attempt.process.terminate()
    state = attempt.ended()
    assert time.monotonic() - asked_at >= 0.5
    assert state["signal"] == "SIGKILL" and state["launcher_pid"] in state["killed"]


def test_a_second_sigterm_kills_at_once(start):
    attempt = start(shell("trap '' TERM; touch ready; while :; do sleep 0.05; done"), grace_s=600)
    attempt.ready()
    attempt.process.terminate()
    attempt.reached("stopping")
    attempt.process.terminate()
    assert attempt.ended()["signal"] == "SIGKILL"


def test_a_stop_file_stops_and_a_smaller_number_hurries(start):
    attempt = start(shell("trap '' TERM; touch ready; while :; do sleep 0.05; done"))
    attempt.ready()
    (attempt.dir / "stop").write_text("600")
    attempt.reached("stopping")
    (attempt.dir / "stop").write_text("0")
    assert attempt.ended()["signal"] == "SIGKILL"


def test_supervisor_ends_processes_that_a_command_leaves(start):
    stubborn = "setsid sh -c 'trap \"\" TERM; touch ready; sleep 600'"
    attempt = start(shell(f"setsid sleep 600 & {stubborn} & while [ ! -e ready ]; do sleep 0.05; done; exit 0"))
    state = attempt.ended()
    assert state["exit_code"] == 0
    assert state["killed"] != []


def test_a_process_that_dropped_its_environment_is_ended_too(start):
    attempt = start(shell("env -i sleep 600 & echo $! > sleeper; exit 3"))
    assert attempt.ended()["exit_code"] == 3
    assert processes.find(int((attempt.work / "sleeper").read_text())) is None


def test_an_attempt_is_started_at_most_once(start):
    attempt = start(shell("echo once; touch ready; while [ -e ready ]; do sleep 0.05; done"))
    attempt.ready()
    assert attempt.start().wait(LIMIT_S) == 0
    attempt.let_end()
    attempt.ended()
    assert attempt.start().wait(LIMIT_S) == 0
    assert attempt.log("rank0.out") == "once\n"


def test_the_command_ends_when_its_supervisor_is_killed(start):
    attempt = start(shell("touch ready; exec sleep 600"))
    attempt.ready()
    attempt.process.kill()
    until(lambda: not processes.of_attempt(attempt.run_id, 1, 0))


def fill_disk(attempt):
    """Opening a folder for writing fails as creating a file on a full disk does."""
    blocked = attempt.dir / "supervisor.tmp"
    blocked.mkdir()
    return blocked


def test_an_end_is_noted_on_a_full_disk_in_room_kept_for_it(start):
    attempt = start(shell("touch ready; while [ -e ready ]; do sleep 0.05; done; exit 3"))
    attempt.reached("running")
    fill_disk(attempt)
    attempt.let_end()
    assert attempt.ended()["exit_code"] == 3
    assert list(attempt.dir.glob("supervisor.spare*")) == []


def test_a_state_that_could_not_be_written_is_written_later(start):
    attempt = start(shell("touch ready; while [ -e ready ]; do sleep 0.05; done"))
    attempt.reached("running")
    blocked = fill_disk(attempt)
    for spare in attempt.dir.glob("supervisor.spare*"):
        spare.unlink()
    attempt.let_end()
    until(lambda: not processes.of_attempt(attempt.run_id, 1, 0))
    time.sleep(0.3)
    assert attempt.process.poll() is None and attempt.state["state"] == "running"
    blocked.rmdir()
    assert attempt.ended()["exit_code"] == 0


def test_a_log_has_room_for_last_words_on_a_full_disk(start):
    attempt = start(shell("echo oh >&2"))
    attempt.ended()
    status = (attempt.dir / "logs/rank0.err").stat()
    assert status.st_size == 3
    assert status.st_blocks * 512 >= 16 * 1024


def test_a_state_file_that_was_deleted_is_written_again(start):
    attempt = start(shell("touch ready; while [ -e ready ]; do sleep 0.05; done"))
    before = attempt.reached("running")
    (attempt.dir / "supervisor.json").unlink()
    assert attempt.reached("running") == before
    attempt.let_end()
    attempt.ended()


def test_a_lock_file_that_was_deleted_is_held_again(start):
    attempt = start(shell("touch ready; while [ -e ready ]; do sleep 0.05; done"))
    attempt.reached("running")
    (attempt.dir / "supervisor.lock").unlink()
    until(lambda: supervision.holds_lock(attempt.dir))
    attempt.let_end()
    attempt.ended()


def test_a_supervisor_whose_directory_was_deleted_ends_its_processes_and_itself(start):
    attempt = start(shell("trap '' TERM; touch ready; while :; do sleep 0.05; done"), grace_s=0.5)
    attempt.ready()
    delete(attempt.dir)
    assert attempt.process.wait(LIMIT_S) == 0
    assert processes.of_attempt(attempt.run_id, 1, 0) == []
    assert not attempt.dir.exists()


def test_the_part_that_another_worker_of_this_machine_has_is_left_alone(start):
    attempt = start(["true"], env={"RANKZERO_NODE_RANK": "1"})
    env = {"RANKZERO_RUN_ID": attempt.run_id, "RANKZERO_ATTEMPT": "1", "RANKZERO_NODE_RANK": "0"}
    with subprocess.Popen(["sleep", "600"], env=os.environ | env) as part:
        try:
            assert attempt.process.wait(LIMIT_S) == 0 and attempt.state["state"] == "ended"
            assert part.poll() is None
        finally:
            part.kill()


def test_a_folder_that_goes_while_it_is_listed_ends_no_supervisor(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "is_dir", lambda _: True)  # as it was a moment ago
    assert supervisor.recorded_ranks(tmp_path / "gone") == {}
    supervisor.AbortedRanks(tmp_path / "gone").look()


def test_another_directory_in_the_place_of_its_own_is_left_alone(start):
    attempt = start(shell("touch ready; exec sleep 600"))
    attempt.reached("running")
    attempt.dir.rename(attempt.dir.with_name("moved"))
    attempt.dir.mkdir()
    assert attempt.process.wait(LIMIT_S) == 0
    assert processes.of_attempt(attempt.run_id, 1, 0) == []
    assert list(attempt.dir.iterdir()) == []


TRAINING = textwrap.dedent("""
    import os, signal, sys, time, pathlib
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    def leave(*_):
        print("saved", rank, flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    print("hello from", rank, flush=True)
    pathlib.Path(f"ready{rank}").touch()
    time.sleep(600)
""")


def torchrun(attempt_dir: Path, script: Path):
    options = [
        "--standalone",
        "--nproc-per-node=2",
        f"--log-dir={attempt_dir}/logs/torchrun",
        "--redirects=3",
    ]
    return [TORCHRUN, *options, str(script)]


@pytest.fixture
def training(start, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    attempt = start(torchrun(tmp_path / "0/node0", script), launcher="torchrun", ranks=2, env={"OMP_NUM_THREADS": "1"})
    until(lambda: all((attempt.work / f"ready{rank}").exists() for rank in (0, 1)))
    return attempt


@pytest.mark.long  # tests/end_to_end/test_failures.py kills it in the whole product
def test_killing_torchrun_leaves_no_rank_behind(training):
    state = training.state
    assert state["state"] == "running" and set(state["ranks"]) == {"0", "1"}
    ranks = [processes.find(pid) for pid in state["ranks"].values()]
    assert all(processes.environment(rank.pid)["RANKZERO_RUN_ID"] == training.run_id for rank in ranks)
    os.kill(state["launcher_pid"], signal.SIGKILL)
    state = training.ended()
    assert state["signal"] == "SIGKILL" and state["stop_requested_at"] is None
    assert not any(processes.is_alive(rank) for rank in ranks)


def test_stopping_torchrun_lets_every_rank_save(training):
    training.process.terminate()
    assert training.ended()["killed"] == []
    for rank in (0, 1):
        assert training.log(f"rank{rank}.out") == f"hello from {rank}\nsaved {rank}\n"
        link = training.dir / "logs" / f"rank{rank}.out"
        assert not link.readlink().is_absolute()


def record(rank, pid):
    return json.dumps({"t": 1.0, "rank": rank, "pid": pid})


def test_ranks_that_the_script_starts_itself_run_from_the_first_ones_record_on(start):
    script = "mkdir -p ../probe; : > ../probe/12.jsonl; "  # as a probe that has just begun its record
    script += f"echo '{record(1, 11)}' > ../probe/11.jsonl; touch ready; "
    script += f"while [ -e ready ]; do sleep 0.05; done; echo '{record(0, 10)}' > ../probe/10.jsonl; sleep 600"
    attempt = start(shell(script), ranks=2, env={"RANKZERO_PROBE_DIR": "probe"})
    state = attempt.reached("running")
    assert state["ranks"] == {"1": 11}
    attempt.let_end()
    until(lambda: attempt.state["ranks"] == {"0": 10, "1": 11})
    assert attempt.state["running_at"] == state["running_at"]
    attempt.process.terminate()
    attempt.ended()


def test_a_script_without_ranks_runs_from_its_first_figure_or_without_the_probe_its_first_output_on(start):
    wait = "echo words; touch ready; while [ -e ready ]; do sleep 0.05; done"
    watched = start(shell(wait), ranks=2, env={"RANKZERO_PROBE_DIR": "probe"})
    unwatched = start(shell(wait), ranks=2)
    unwatched.reached("running")
    watched.ready()
    assert watched.state["state"] == "starting"
    (watched.dir / "worker").mkdir()
    (watched.dir / "worker" / "points").touch()
    watched.reached("running")
    for attempt in (watched, unwatched):
        attempt.let_end()
        assert attempt.ended()["exit_code"] == 0


def test_a_script_that_was_over_before_its_ranks_were_seen_ran_from_its_start_on(start):
    state = start(["true"], ranks=2, env={"RANKZERO_PROBE_DIR": "probe"}).ended()
    assert state["running_at"] == state["started_at"]


@pytest.mark.parametrize("has_logs", [True, False])
def test_ranks_that_failed_before_they_were_seen_ran_from_the_start_on(start, has_logs):
    """Those of a torchrun that has opened their logs; without them it has started none."""
    logs = "../logs/torchrun/any/attempt_0/0"
    opens = f"mkdir -p {logs}; touch {logs}/stdout.log {logs}/stderr.log; " if has_logs else ""
    state = start(shell(f"{opens}exit 1"), launcher="torchrun").ended()
    assert state["running_at"] == (state["started_at"] if has_logs else None)
