"""Processes of the kernel are started, followed and stopped by their node, and hold up nobody."""

from __future__ import annotations

import os
import signal

import pytest

from domain.messages import Reason
from tests.end_to_end.product import wait_for
from tests.worker.node_under_test import RUN, delete
from tests.worker.real_node import WAITING
from worker.node import processes
from worker.node.state_files import read_object

pytestmark = pytest.mark.real


def test_a_run_is_started_followed_and_reported(node):
    node.assign(node.assignment(node.script("import sys\nprint('hello')\nprint('oh', file=sys.stderr)\n")))
    end = node.until_settled()
    assert node.server.states() == ["starting", "running", "succeeded"]
    assert node.server.text("logs/rank0.out") == "hello\n"
    assert node.server.text("logs/rank0.err") == "oh\n"
    assert (end.exit_code, end.reason) == (0, None)
    first = node.server.reports[0][1]
    assert first.argv[-1] == node.script("import sys\nprint('hello')\nprint('oh', file=sys.stderr)\n")
    assert first.env["RANKZERO_RUN_ID"] == RUN and first.pid == node.supervisor()["pid"]


PIPES = """
import os, pathlib
folder = pathlib.Path("..")
own = [path for pattern in ("*", "worker/*", "probe/*") for path in folder.glob(pattern)]
for path in [*own, folder / "stop", folder / ".stop.tmp"]:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        os.mkfifo(path)
"""


@pytest.mark.timeout(180)
def test_a_script_that_puts_pipes_in_place_of_the_nodes_files_holds_up_nobody(node):
    hostile = node.assignment(node.script(PIPES + WAITING))
    other = node.assignment(node.script(WAITING, "other.py"), fence=2, attempt=2)
    node.assign(hostile, other)
    node.until(lambda: (node.dir() / "work/ready").exists() and (node.dir(2) / "work/ready").exists())
    node.start_worker()
    node.let_end(2)
    node.until(lambda: node.server.states(2)[-1:] == ["succeeded"])
    node.assign(hostile.model_copy(update={"action": "stop"}))
    node.until(lambda: not node.daemon.attempts)
    assert node.server.end(1).state in ("stopped", "failed")
    assert processes.of_attempt(RUN, 1, 0) == []


def test_a_failing_script_is_reported_with_its_last_words(node):
    node.assign(node.assignment(node.script("raise ValueError('no such luck')")))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.SCRIPT_ERROR)
    assert "no such luck" in end.message and end.error.line == 1


SAVING = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("saved"))
"""


def test_stop_lets_the_script_save(node):
    script = node.script(SAVING + WAITING)
    node.assign(node.assignment(script))
    node.until_ready()
    node.assign(node.assignment(script, action="stop"))
    node.until(lambda: "stopping" in node.server.states())
    node.until((node.dir() / "logs/rank0.out").read_text)  # the state is written before the signal is sent
    node.let_end()
    assert node.until_settled().state == "stopped"
    assert node.server.states() == ["starting", "running", "stopping", "stopped"]
    assert node.server.text("logs/rank0.out") == "saved\n"


def test_a_worker_that_was_killed_finds_its_training_again(node):
    node.assign(node.assignment(node.script("print('once')\n" + WAITING)))
    node.until_ready()
    pid = node.supervisor()["launcher_pid"]
    for _ in range(3):
        node.start_worker()
        node.turn()
    assert node.supervisor()["launcher_pid"] == pid
    node.let_end()
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == "once\n"


def test_a_killed_supervisor_fails_its_attempt_and_leaves_no_process(node):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED)
    assert "supervisor was killed" in end.message
    assert processes.of_attempt(RUN, 1, 0) == []


@pytest.mark.parametrize("keeps_session", [True, False], ids=["in its session", "in a session of its own"])
def test_a_process_that_emptied_its_environment_ends_with_a_killed_supervisor(node, keeps_session):
    child = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    child += "" if keeps_session else "os.setsid(); "
    child += "open('child', 'w').write(str(os.getpid())); time.sleep(1000)"
    script = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {child!r}], env={{}})\n" + WAITING
    node.assign(node.assignment(node.script(script)))
    node.until_ready()
    written = node.dir() / "work" / "child"
    wait_for(lambda: written.exists() and written.read_text(), "the child")
    process = processes.find(int(written.read_text()))
    assert process is not None and RUN not in processes.environment(process.pid).values()
    if not keeps_session:
        recorded = node.dir() / "members.json"
        wait_for(lambda: [*process] in read_object(recorded).get("members", ()), "the record of it")
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    assert node.until_settled().state == "failed"
    assert not processes.is_alive(process)


def test_a_directory_deleted_in_mid_run_ends_the_attempt_with_a_sentence(node):
    node.assign(node.assignment(node.script(WAITING), spec={"stop_grace_s": 1}))
    node.until_ready()
    delete(node.dir())
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED) and "directory was deleted" in end.message
    assert node.supervisors[0].wait(300) == 0 and processes.of_attempt(RUN, 1, 0) == []
