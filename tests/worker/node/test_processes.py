"""Processes are found by descent and by environment, and never confused with a later one of the same pid."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.end_to_end.product import wait_for
from tests.virtual_time import VirtualTime
from tests.worker.started import started
from worker.node import processes
from worker.node.processes import Process

RUN = uuid.uuid4().hex[:10]


@pytest.fixture
def sleeper():
    env = os.environ | {"RANKZERO_RUN_ID": RUN, "RANKZERO_ATTEMPT": "3", "RANKZERO_NODE_RANK": "1"}
    child = started(["sleep", "600"], env=env)
    yield child
    child.kill()
    child.wait()


def test_a_process_is_itself_only_with_its_start_time(sleeper):
    process = processes.find(sleeper.pid)
    assert process is not None and processes.is_alive(process)
    assert not processes.is_alive(Process(sleeper.pid, process.start_ticks + 1))


def test_a_zombie_is_not_alive(sleeper):
    process = processes.find(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(process)


def test_an_attempts_processes_are_found_by_their_environment(sleeper):
    assert [process.pid for process in processes.of_attempt(RUN, 3, 1)] == [sleeper.pid]
    assert processes.of_attempt(RUN, 4, 1) == []


def test_another_workers_part_of_the_attempt_on_this_machine_is_not_ours(sleeper):
    assert processes.of_attempt(RUN, 3, 0) == []


def test_children_and_their_children_are_descendants():
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        grandchild = int(shell.stdout.readline())
        assert shell.pid in processes.children(os.getpid())
        assert {shell.pid, grandchild} <= {process.pid for process in processes.descendants(os.getpid())}
        os.kill(grandchild, signal.SIGKILL)


def test_a_signal_is_not_sent_to_a_later_process_with_the_same_pid(sleeper):
    stale = Process(sleeper.pid, 1)
    assert not processes.send_signal(stale, signal.SIGKILL)
    assert sleeper.poll() is None


def test_kill_all_goes_on_until_nobody_is_found(sleeper):
    killed = processes.kill_all(lambda: processes.of_attempt(RUN, 3, 1), timeout_s=300)
    assert killed == [sleeper.pid]
    assert sleeper.wait(300) == -signal.SIGKILL


def test_kill_all_kills_once_also_where_looking_takes_longer_than_it_may(sleeper):
    assert processes.kill_all(lambda: processes.of_attempt(RUN, 3, 1), timeout_s=0) == [sleeper.pid]


def test_a_child_dies_with_its_parent():
    program = (
        "import subprocess, sys, worker.node.processes as p\n"
        "child = subprocess.Popen(['sleep', '600'], preexec_fn=lambda: p.die_with_parent(9), stdout=2)\n"
        "print(child.pid, flush=True); sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child = processes.find(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    wait_for(lambda: not processes.is_alive(child), "the child to be gone")


def test_a_look_at_a_lock_keeps_nobody_from_taking_it(tmp_path: Path):
    (path := tmp_path / "lock").touch()
    with path.open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        assert not processes.is_locked(path)
        virtual = VirtualTime()
        virtual.call_after(processes.LOCK_PAUSE_S, lambda: fcntl.flock(look, fcntl.LOCK_UN))
        os.close(processes.take_lock(path, virtual))


def test_a_lock_that_is_kept_is_refused(tmp_path: Path):
    path = tmp_path / "lock"
    kept = processes.take_lock(path)
    with pytest.raises(BlockingIOError):
        processes.take_lock(path, VirtualTime())
    assert processes.is_locked(path)
    os.close(kept)
    assert not processes.is_locked(path)


def test_the_chosen_pythons_folder_leads_the_path_of_what_it_starts() -> None:
    own = {"PATH": "/usr/bin:/env/bin:/bin", "A": "1"}
    merged = processes.merged_environment(own, {"PYTHONPATH": "/probe"}, "/env/bin/torchrun")
    assert merged == {"PATH": "/env/bin:/usr/bin:/bin", "A": "1", "PYTHONPATH": "/probe"}
    assert processes.merged_environment({}, {}, "/env/bin/python")["PATH"] == f"/env/bin:{os.defpath}"
    assert processes.merged_environment(own, {}, "python") == own
