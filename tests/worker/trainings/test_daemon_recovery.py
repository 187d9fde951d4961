"""What a worker finds again, reports and ends when it, its supervisors or its files are gone."""

from __future__ import annotations

import dataclasses
import random

import pytest

from domain.messages import Reason
from tests.worker.node_under_test import RUN, delete
from tests.worker.virtual_node import VirtualNode, events, nothing, printing, stubborn, then, waiting


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    return virtual_node


def test_a_worker_that_was_killed_finds_its_training_again(node):
    node.assign(node.assignment(node.script(then(printing("once"), waiting))))
    node.until_ready()
    pid = node.supervisor()["launcher_pid"]
    for _ in range(3):
        node.start_worker()
        node.time.advance(1.0)
    assert node.supervisor()["launcher_pid"] == pid
    node.let_end()
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == "once\n"


def test_an_end_nobody_saw_is_reported_by_the_next_worker(node):
    node.assign(node.assignment(node.script(then(printing("bye"), waiting))))
    node.until_ready()
    node.end_worker()
    node.let_end()
    node.until(lambda: node.supervisor()["state"] == "ended")
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
    node.until_settled()
    assert len(node.server.series["train/loss"]) == 5


def test_acknowledged_end_is_not_reported_again(node):
    node.assign(node.assignment(node.script(nothing)))
    node.until_settled()
    reports_before = len(node.server.reports)
    node.start_worker()
    node.time.advance(60.0)
    assert node.daemon.attempts == [] and len(node.server.reports) == reports_before


def test_training_goes_on_while_the_server_is_away(node):
    node.assign(node.assignment(node.script(then(events(), printing("trained on"), waiting))))
    node.until(node.supervisor)
    node.server.is_away = True
    node.until(lambda: (node.dir() / "work/ready").exists())
    node.let_end()
    node.until(lambda: node.supervisor()["state"] == "ended")
    node.time.advance(60.0)
    assert node.server.end() is None
    node.server.is_away = False
    assert node.until_settled().state == "succeeded"
    assert len(node.server.series["train/loss"]) == 5
    assert node.server.text("logs/rank0.out") == "trained on\n"


def test_a_killed_supervisor_fails_its_attempt_and_leaves_no_process(node):
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    node.machine.supervisors[0].kill()
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED)
    assert "supervisor was killed" in end.message
    assert node.ranks == []


def test_a_run_of_a_restored_store_with_a_number_in_use_here_trains_beside_the_other(node):
    newer = node.assignment(node.script(waiting, "newer.py"), store="newer", uid="a" * 16)
    node.assign(newer)
    node.until_ready()
    restored = node.assignment(node.script(printing("restored"), "restored.py"), store="restored", uid="b" * 16)
    node.assign(restored.model_copy(update={"run_id": f"r{RUN[1:]}"}))
    node.until(lambda: len(node.daemon.attempts) == 2)
    node.until(lambda: node.server.end())
    assert node.server.end().state == "succeeded", node.server.end().message
    node.until(lambda: [held.run_id for held in node.daemon.held_attempts] == [RUN])
    assert node.machine.of_attempt(RUN, 1, 0) != []


def test_a_supervisor_killed_while_the_worker_was_away_is_noticed_by_the_next(node):
    node.assign(node.assignment(node.script(stubborn)))
    node.until_ready()
    node.end_worker()
    node.machine.supervisors[0].kill()
    node.start_worker()
    assert node.until_settled().reason == Reason.KILLED
    assert node.ranks == []


def test_a_training_whose_state_file_was_deleted_is_followed_by_the_next_worker(node):
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    before = node.supervisor()
    (node.dir() / "supervisor.json").unlink()
    node.start_worker()
    node.until(lambda: node.supervisor() == before)
    node.time.advance(10.0)
    assert len(node.machine.supervisors) == 1
    node.let_end()
    assert node.until_settled().state == "succeeded"


def test_a_supervisor_that_cannot_write_its_state_is_followed_and_told_to_stop(node):
    assignment = node.assignment(node.script(waiting))
    node.assign(assignment)
    node.until_ready()
    (node.dir() / "supervisor.tmp").mkdir()  # opening it for writing fails as on a full disk
    for name in (*(spare.name for spare in node.dir().glob("supervisor.spare*")), "supervisor.json"):
        (node.dir() / name).unlink()  # it last: as long as there is a spare, the supervisor restores it from that
    node.start_worker()
    node.time.advance(10.0)
    assert len(node.machine.supervisors) == 1 and node.machine.supervisors[0].poll() is None
    assert node.server.end() is None and node.daemon.attempts[0].is_over is False
    node.assign(assignment.model_copy(update={"action": "stop"}))
    node.until(lambda: not node.ranks)
    node.time.advance(10.0)
    assert node.server.end() is None  # its last word is not written yet
    (node.dir() / "supervisor.tmp").rmdir()
    assert node.until_settled().state == "stopped"


def test_worker_ends_ranks_without_supervisor_before_it_reports_the_end(node):
    node.assign(node.assignment(node.script(then(printing("begun"), stubborn))))
    node.until_ready()
    node.end_worker()
    node.machine.supervisors[0].kill()
    (node.dir() / "supervisor.json").unlink()
    assert node.ranks
    node.start_worker()
    node.time.advance(1.0)
    assert node.server.end() is None and node.ranks
    end = node.until_settled()
    assert node.ranks == [] and len(node.machine.supervisors) == 1
    assert (end.state, end.reason) == ("failed", Reason.KILLED) and "supervisor.json" in end.message
    assert node.server.text("logs/rank0.out") == "begun\n"


def test_attempt_without_its_state_file_is_not_started_again(node):
    node.assign(node.assignment(node.script(then(printing("once"), waiting))))
    node.until_ready()
    node.end_worker()
    node.let_end()
    node.until(lambda: node.machine.supervisors[0].poll() == 0)
    (node.dir() / "supervisor.json").unlink()
    node.start_worker()
    assert node.until_settled().state == "failed"
    assert len(node.machine.supervisors) == 1
    assert node.server.text("logs/rank0.out") == "once\n"


def test_a_directory_deleted_in_mid_run_ends_the_attempt_with_a_sentence(node):
    node.assign(node.assignment(node.script(waiting), spec={"stop_grace_s": 1}))
    node.until_ready()
    delete(node.dir())
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED) and "directory was deleted" in end.message
    assert node.machine.supervisors[0].poll() == 0 and node.ranks == []


def test_points_arrive_once_whatever_is_killed(node):
    """The worker is replaced at random moments while a script writes and the server comes and goes."""
    chance = random.Random(7)
    node.assign(node.assignment(node.script(events(range(400), pause_s=0.02))))
    node.server.loses_replies = True
    for _ in range(12):
        node.time.advance(chance.uniform(0.0, 1.5))
        node.server.is_away = chance.random() < 0.3
        node.start_worker()
    node.server.is_away = False
    assert node.until_settled().state == "succeeded"
    assert [point[0] for point in node.server.series["train/loss"]] == list(range(400))


def test_attempt_that_another_worker_began_is_ended_and_not_started_again(node):
    """A data directory that was lost, or an identity that was copied without it."""
    assignment = node.assignment(node.script(waiting))
    node.assign(assignment)
    node.until_ready()
    node.node = dataclasses.replace(node.node, data_dir=node.folder / "another")
    node.start_worker()
    node.assign(assignment.model_copy(update={"is_known": True}))
    end = node.until(node.server.end)
    assert (end.state, end.reason) == ("failed", Reason.NODE_LOST)
    assert "Node n0 returned without the run" in end.message
    assert node.ranks == []
    assert len(node.machine.supervisors) == 1


def test_a_machine_that_restarted_has_lost_its_attempts(node):
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    node.end_worker()
    node.machine.restart()
    node.start_worker()
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.NODE_LOST)
