"""The two programs `rankzero up` keeps running: histories with a clock of the test's own, then real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.up import children
from cli.up.children import ProgramCommand, SupervisedProgram, start_program
from cli.up.local_nodes import RunProcesses
from tests.end_to_end.product import safely, wait_for
from worker.node.attempt_files import SUPERVISOR_MODULE


class FakeProcess:
    """A process that ends when the test says so."""

    def __init__(self) -> None:
        self.pid = 4211
        self.code: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


def fake_child(tmp_path: Path) -> tuple[SupervisedProgram, list[FakeProcess]]:
    started: list[FakeProcess] = []

    def start(_program: ProgramCommand) -> Any:
        started.append(FakeProcess())
        return started[-1]

    return SupervisedProgram(ProgramCommand("worker", ["x"], tmp_path / "worker.log", {}), start), started


def test_a_child_that_dies_is_started_again_after_ever_longer_pauses(tmp_path) -> None:
    child, started = fake_child(tmp_path)
    child.step(0.0)
    now, pauses = 0.0, []
    for _ in range(9):
        started[-1].code = 1
        news = child.step(now)
        assert news is not None and "worker ended (exit code 1)" in news
        ended, count = now, len(started)
        while len(started) == count:
            now += 0.25
            child.step(now)
        pauses.append(now - ended)
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(pauses) == 30.0


def test_after_a_steady_life_the_pause_is_short_again(tmp_path) -> None:
    child, started = fake_child(tmp_path)
    for begin in (0.0, 1.0, 3.0):
        child.step(begin)
        started[-1].code = -9
        assert child.step(begin)
    child.step(100.0)
    started[-1].code = -9
    assert "SIGKILL" in str(child.step(100.0 + children.STEADY_S))
    assert len(started) == 4
    child.step(100.6 + children.STEADY_S)
    assert len(started) == 5


def test_a_child_told_to_end_is_not_started_again(tmp_path) -> None:
    child, started = fake_child(tmp_path)
    child.step(0.0)
    child.send(signal.SIGTERM)
    assert started[0].signals == [signal.SIGTERM]
    started[0].code = 0
    child.step(1.0)
    child.send(signal.SIGKILL)
    assert len(started) == 1 and started[0].signals == [signal.SIGTERM]


def test_a_child_between_two_lives_is_not_started_again_either(tmp_path) -> None:
    child, started = fake_child(tmp_path)
    child.step(0.0)
    started[0].code = 1
    child.step(0.0)
    child.send(signal.SIGTERM)
    child.step(100.0)
    assert len(started) == 1


def test_its_last_words_since_this_start_explain_the_end(tmp_path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("an old complaint\n")
    child = SupervisedProgram(
        ProgramCommand("worker", [sys.executable, "-c", "raise SystemExit('no token')"], log, dict(os.environ))
    )
    child.step(0.0)
    wait_for(lambda: not child.is_running, "the child to end")
    assert child.step(0.0) == "worker ended (exit code 1: no token), restarting it in 0.5 s"
    assert log.stat().st_mode & 0o777 == 0o644  # it was there before
    silent = SupervisedProgram(ProgramCommand("worker", [sys.executable, "-c", ""], log, dict(os.environ)))
    silent.step(0.0)
    wait_for(lambda: not silent.is_running, "the child without a message to end")
    assert silent.step(0.0) == "worker ended (exit code 0), restarting it in 0.5 s"


def test_a_new_log_is_its_owners_only(tmp_path) -> None:
    process = start_program(ProgramCommand("x", [sys.executable, "-c", ""], tmp_path / "x.log", dict(os.environ)))
    assert process.wait(60) == 0
    assert (tmp_path / "x.log").stat().st_mode & 0o777 == 0o600


def test_a_large_log_is_cut_while_it_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(children, "LARGEST_LOG_BYTES", 1000)
    log = tmp_path / "x.log"
    child = SupervisedProgram(
        ProgramCommand("x", [sys.executable, "-uc", "print('a' * 2000); input()"], log, dict(os.environ))
    )
    log.write_text("b" * 2000)
    child.trim_log()
    assert log.stat().st_size == 0
    assert (tmp_path / "x.log.1").read_text() == "b" * 2000


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there children die with their parent")
def test_children_die_with_a_parent_that_is_killed(tmp_path) -> None:
    program = f"""
import os, time
from pathlib import Path
from cli.up.children import ProgramCommand, start_program
child = start_program(ProgramCommand("x", ["sleep", "600"], Path({str(tmp_path / "x.log")!r}), dict(os.environ)))
print(child.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.cmdline() == ["sleep", "600"]
    assert os.getsid(child.pid) == child.pid
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: safely(child.status, psutil.STATUS_ZOMBIE) == psutil.STATUS_ZOMBIE, "the child to end")


def test_processes_of_runs_are_found_by_their_data_directory_and_killed(tmp_path: Path) -> None:
    run_id = uuid.uuid4().hex[:10]
    (tmp_path / "runs" / run_id).mkdir(parents=True)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    environment = os.environ | {"RANKZERO_RUN_ID": run_id}
    supervisor = subprocess.Popen([*sleep, "-m", SUPERVISOR_MODULE, "--data", str(tmp_path)])
    rank = subprocess.Popen(sleep, env=environment)
    other_data = subprocess.Popen([*sleep, "-m", SUPERVISOR_MODULE, "--data", str(tmp_path) + "2"])
    other_run = subprocess.Popen(sleep, env=environment | {"RANKZERO_RUN_ID": uuid.uuid4().hex[:10]})
    try:
        run_processes = RunProcesses(tmp_path)
        wait_for(
            lambda: [process.pid for process in run_processes.supervisors()] == [supervisor.pid],
            "the supervisor to be found",
        )
        wait_for(
            lambda: {process.pid for process in run_processes.all_processes()} == {supervisor.pid, rank.pid},
            "both to be found",
        )
        run_processes.kill()
        assert None not in (supervisor.poll(), rank.poll())
        assert run_processes.all_processes() == []
        assert (other_data.poll(), other_run.poll()) == (None, None)
    finally:
        for process in (supervisor, rank, other_data, other_run):
            process.kill()
            process.wait()
