"""What a worker finds again, reports and ends when it, its supervisors or its files are gone."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import time

import pytest

from domain.messages import Reason
from tests.end_to_end.product import wait_for
from tests.worker.node_under_test import RUN, WAITING, delete, events
from worker.node import processes
from worker.node.state_files import read_object


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


def test_an_end_nobody_saw_is_reported_by_the_next_worker(node):
    node.assign(node.assignment(node.script("print('bye')\n" + WAITING)))
    node.until_ready()
    node.let_end()
    wait_for(lambda: node.supervisor()["state"] == "ended", "the supervisor to note the end")
    node.start_worker()
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == "bye\n"


def test_a_restarted_worker_sends_the_points_of_files_it_has_mirrored_already(node):
    node.assign(node.assignment(node.script(events())))
    node.until_settled()
    (node.dir() / "worker/reported.json").unlink()
    node.server.points_offsets.clear()
    node.server.series.clear()
    node.start_worker()
    (attempt,) = node.daemon.attempts
    attempt.act(time.monotonic())
    node.daemon.take_checkpoints(time.monotonic())  # the other thread was faster: all else is done
    node.daemon.step(time.monotonic())
    assert node.daemon.attempts == []
    assert len(node.server.series["train/loss"]) == 5


def test_acknowledged_end_is_not_reported_again(node):
    node.assign(node.assignment(node.script("pass")))
    node.until_settled()
    reports_before = len(node.server.reports)
    node.start_worker()
    node.turn()
    assert node.daemon.attempts == [] and len(node.server.reports) == reports_before


def test_training_goes_on_while_the_server_is_away(node):
    script = node.script(events() + "print('trained on')\n" + WAITING)
    node.assign(node.assignment(script))
    node.until(lambda: node.supervisor() is not None)
    node.server.is_away = True
    node.until(lambda: (node.dir() / "work/ready").exists())
    node.let_end()
    node.until(lambda: node.supervisor()["state"] == "ended")
    assert node.server.end() is None
    node.server.is_away = False
    assert node.until_settled().state == "succeeded"
    assert len(node.server.series["train/loss"]) == 5
    assert node.server.text("logs/rank0.out") == "trained on\n"


def test_a_killed_supervisor_fails_its_attempt_and_leaves_no_process(node):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED)
    assert "supervisor of the attempt was killed" in end.message
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


def test_a_run_of_a_restored_store_with_a_number_in_use_here_trains_beside_the_other(node):
    newer = node.assignment(node.script(WAITING, "newer.py"), store="newer", uid="a" * 16)
    node.assign(newer)
    node.until_ready()
    restored = node.assignment(node.script("print('restored')", "restored.py"), store="restored", uid="b" * 16)
    node.assign(restored.model_copy(update={"run_id": f"r{RUN[1:]}"}))
    node.until(lambda: len(node.daemon.attempts) == 2)
    node.until(lambda: node.server.end())
    assert node.server.end().state == "succeeded", node.server.end().message
    node.until(lambda: [held.run_id for held in node.daemon.held_attempts] == [RUN])
    assert processes.of_attempt(RUN, 1, 0) != []


def test_a_supervisor_killed_while_the_worker_was_away_is_noticed_by_the_next(node):
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITING
    node.assign(node.assignment(node.script(script)))
    node.until_ready()
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    node.start_worker()
    assert node.until_settled().reason == Reason.KILLED
    assert processes.of_attempt(RUN, 1, 0) == []


def test_a_machine_that_restarted_has_lost_its_attempts(node):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    state = node.supervisor()
    os.kill(state["pid"], signal.SIGKILL)
    (node.dir() / "supervisor.json").write_text(json.dumps(state | {"boot_id": "an earlier one"}))
    node.start_worker()
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.NODE_LOST)


def test_a_training_whose_state_file_was_deleted_is_followed_by_the_next_worker(node):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    before = node.supervisor()
    (node.dir() / "supervisor.json").unlink()
    node.start_worker()
    node.until(lambda: node.supervisor() == before)
    for _ in range(10):
        node.turn()
    assert len(node.supervisors) == 1
    node.let_end()
    assert node.until_settled().state == "succeeded"


def test_a_supervisor_that_cannot_write_its_state_is_followed_and_told_to_stop(node):
    assignment = node.assignment(node.script(WAITING))
    node.assign(assignment)
    node.until_ready()
    (node.dir() / "supervisor.tmp").mkdir()  # opening it for writing fails as on a full disk
    for name in (*(spare.name for spare in node.dir().glob("supervisor.spare*")), "supervisor.json"):
        (node.dir() / name).unlink()  # it last: as long as there is a spare, the supervisor restores it from that
    node.start_worker()
    for _ in range(10):
        node.turn()
    assert len(node.supervisors) == 1 and node.supervisors[0].poll() is None
    assert node.server.end() is None and node.daemon.attempts[0].is_over is False
    node.assign(assignment.model_copy(update={"action": "stop"}))
    node.until(lambda: not processes.of_attempt(RUN, 1, 0))
    for _ in range(5):
        node.turn()
    assert node.server.end() is None  # its last word is not written yet
    (node.dir() / "supervisor.tmp").rmdir()
    assert node.until_settled().state == "stopped"


def test_worker_ends_ranks_without_supervisor_before_it_reports_the_end(node):
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('begun', flush=True)\n"
    node.assign(node.assignment(node.script(stubborn + WAITING)))
    node.until_ready()
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    node.supervisors[0].wait()
    (node.dir() / "supervisor.json").unlink()
    assert processes.of_attempt(RUN, 1, 0)
    node.start_worker()
    node.turn()
    assert node.server.end() is None and processes.of_attempt(RUN, 1, 0)
    end = node.until_settled()
    assert processes.of_attempt(RUN, 1, 0) == [] and len(node.supervisors) == 1
    assert (end.state, end.reason) == ("failed", Reason.KILLED) and "supervisor.json" in end.message
    assert node.server.text("logs/rank0.out") == "begun\n"


def test_attempt_without_its_state_file_is_not_started_again(node):
    node.assign(node.assignment(node.script("print('once')\n" + WAITING)))
    node.until_ready()
    node.let_end()
    assert node.supervisors[0].wait(300) == 0  # no turn since: nobody has told of its end
    (node.dir() / "supervisor.json").unlink()
    node.start_worker()
    assert node.until_settled().state == "failed"
    assert len(node.supervisors) == 1
    assert node.server.text("logs/rank0.out") == "once\n"


def test_a_directory_deleted_in_mid_run_ends_the_attempt_with_a_sentence(node):
    node.assign(node.assignment(node.script(WAITING), spec={"stop_grace_s": 1}))
    node.until_ready()
    delete(node.dir())
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED) and "directory was deleted" in end.message
    assert node.supervisors[0].wait(300) == 0 and processes.of_attempt(RUN, 1, 0) == []


def test_points_arrive_once_whatever_is_killed(node):
    """The worker is replaced at random moments while a script writes and the server comes and goes."""
    chance = random.Random(7)
    node.assign(node.assignment(node.script(events(steps=range(400), pause_s=0.005))))
    node.server.loses_replies = True
    for _ in range(12):
        for _ in range(chance.randrange(1, 8)):
            node.turn()
            time.sleep(0.03)
        node.server.is_away = chance.random() < 0.3
        node.start_worker()
    node.server.is_away = False
    assert node.until_settled().state == "succeeded"
    assert [point[0] for point in node.server.series["train/loss"]] == list(range(400))


def test_attempt_that_another_worker_began_is_ended_and_not_started_again(node):
    """A data directory that was lost, or an identity that was copied without it."""
    assignment = node.assignment(node.script(WAITING))
    node.assign(assignment)
    node.until_ready()
    node.node = dataclasses.replace(node.node, data_dir=node.folder / "another")
    node.start_worker()
    node.assign(assignment.model_copy(update={"is_known": True}))
    end = node.until(node.server.end)
    assert (end.state, end.reason) == ("failed", Reason.NODE_LOST)
    assert "Node n0 returned without the run" in end.message
    assert processes.of_attempt(RUN, 1, 0) == []
    assert len(node.supervisors) == 1
