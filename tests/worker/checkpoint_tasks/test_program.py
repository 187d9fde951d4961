"""The program in the run's Python as a process: its messages, its priority, and its end with all it started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from worker.checkpoint_tasks import program
from worker.checkpoint_tasks.program import PUSHING, TaskCommand, TaskFailed, end_leftovers, run_program

pytestmark = pytest.mark.real
HEAD = "import json, os, signal, subprocess, sys, time\nsay = lambda **what: print(json.dumps(what), flush=True)\n"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `rankzero_tensors` a test writes."""
    monkeypatch.setattr(program, "TENSORS_FOLDER", str(tmp_path))
    (tmp_path / "task").mkdir()
    return tmp_path


def run(stage: Path, code: str, stopped: list[bool] | None = None) -> tuple[dict[str, Any], list[Any]]:
    (stage / "rankzero_tensors.py").write_text(HEAD + code)
    progress: list[Any] = []
    command = TaskCommand(sys.executable, ["show", str(stage / "task/source0")], dict(os.environ))
    result = run_program(command, stage / "task", lambda *told: progress.append(told), lambda: not stopped)
    return result, progress


def test_progress_and_the_result_are_read_between_what_libraries_print(stage: Path) -> None:
    code = "print('Loading…')\nsay(progress=[1, 4, 'reads a'])\nprint('[1]')\nsay(result={'argv': sys.argv[1:]})"
    result, progress = run(stage, code)
    assert result == {"argv": ["show", str(stage / "task/source0")]} and progress == [(1, 4, "reads a")]


def test_a_request_goes_to_its_standard_input(stage: Path) -> None:
    (stage / "rankzero_tensors.py").write_text(HEAD + "say(result={'bytes': len(sys.stdin.buffer.read())})")
    command = TaskCommand(sys.executable, [], dict(os.environ), request=b"x" * 1_000_000)
    assert run_program(command, stage / "task", lambda *_: None, lambda: True) == {"bytes": 1_000_000}


def test_it_runs_at_idle_priority_on_one_core_and_sees_no_gpu(stage: Path) -> None:
    code = """
names = "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"
time.sleep(0.2)  # the starter has set the policy
say(result={"policy": os.sched_getscheduler(0), "env": [os.environ[name] for name in names]})
"""
    assert run(stage, code)[0] == {"policy": os.SCHED_IDLE, "env": ["1", ""]}


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("say(refused='It is a picture.')", "It is a picture."),
        ("say(failed='The disk is full.')", "The disk is full."),
        ("sys.exit('no module named torch')", "exit code 1): no module named torch"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "memory is full"),
    ],
)
def test_other_ends_are_sentences(stage: Path, code: str, sentence: str) -> None:
    with pytest.raises(TaskFailed) as failure:
        run(stage, code)
    assert sentence in str(failure.value)


def test_a_stopped_one_ends_with_all_that_it_started(stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "GRACE_S", 0.5)
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("child", "w").write(str(child.pid))
time.sleep(600)
"""
    with pytest.raises(TaskFailed):
        run(stage, code, [True])
    child = int((stage / "task/child").read_text()) if (stage / "task/child").exists() else None
    deadline = time.monotonic() + 60
    while child is not None and Path(f"/proc/{child}").exists() and _lives(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_killed_worker_left_at_work_is_ended(stage: Path) -> None:
    (stage / "rankzero_tensors.py").write_text(HEAD + "time.sleep(600)")
    argv = [sys.executable, "-P", "-m", "rankzero_tensors", "show", str(stage / "task/source0")]
    left = subprocess.Popen(argv, env=os.environ | {"PYTHONPATH": str(stage)})
    deadline = time.monotonic() + 60
    while b"rankzero_tensors" not in Path(f"/proc/{left.pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
    end_leftovers(stage / "other")
    assert left.poll() is None
    end_leftovers(stage / "task")
    assert left.wait(60) < 0


def test_a_push_that_a_killed_worker_left_is_ended_too(stage: Path) -> None:
    argv = [sys.executable, "-P", "-m", PUSHING, str(stage / "task/source0")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as left:  # waits for its request
        deadline = time.monotonic() + 60
        while PUSHING.encode() not in Path(f"/proc/{left.pid}/cmdline").read_bytes():
            assert time.monotonic() < deadline
        end_leftovers(stage / "task")
        assert left.wait(60) < 0


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
