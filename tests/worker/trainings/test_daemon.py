"""What a node does with the server's wishes, whatever happens to server, worker and processes meanwhile."""

from __future__ import annotations

import json

import pytest

from domain.messages import Reason
from tests.worker.node_under_test import RUN
from tests.worker.virtual_node import (
    VirtualNode,
    checkpoint,
    events,
    failing,
    nothing,
    printing,
    stubborn,
    then,
    waiting,
)
from worker.node.state_files import REPORTED_FILE, read_object
from worker.session.failures import RequestFailed, ServerMistake


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    return virtual_node


def test_points_and_event_files_are_complete_before_the_end_is_reported(node):
    node.assign(node.assignment(node.script(events(range(200)))))
    end = node.until(lambda: node.server.end())
    assert end.state == "succeeded", end
    assert [point[:2] for point in node.server.series["train/loss"]] == [(n, n * 0.5) for n in range(200)]
    (path,) = {name for _, name, _ in node.server.files if "tfevents" in name}
    stored = (node.dir() / path).read_bytes()
    assert next(data for (_, name, _), data in node.server.files.items() if name == path) == stored


def deep(process):
    process.write("error.json", b"[" * 50_000)
    process.write("trainer_state.json", b'{"log_history":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
    process.write("../error.json", b'{"message":' * 9_000)


def test_an_unreadable_file_holds_no_slot(node):
    node.assign(node.assignment(node.script(then(events(), deep, failing("ValueError: no luck")))))
    end = node.until_settled()
    assert end.state == "failed" and "no luck" in end.message
    assert len(node.server.series["train/loss"]) == 5
    (finding,) = [finding for finding in node.server.findings_of[1] if finding.kind == "not read"]
    assert "trainer_state.json" in finding.evidence and "nested too deeply" in finding.evidence


def test_an_end_that_cannot_be_explained_is_reported(node, monkeypatch):
    monkeypatch.setattr("worker.attempt.attempt.end_of", lambda *_: 1 / 0)
    node.assign(node.assignment(node.script(lambda process: 3)))
    end = node.until_settled()
    assert (end.state, end.exit_code, end.reason) == ("failed", 3, Reason.EXIT_CODE)


def test_a_start_that_waits_for_torch_is_made_when_it_is_imported(node):
    spawn, importing = node.machine.spawn, [True]
    node.machine.spawn = lambda *order: None if importing else spawn(*order)
    node.assign(node.assignment(node.script(printing("trained"))))
    node.time.advance(10.0)
    assert node.server.states() == [] and not node.machine.supervisors
    importing.clear()
    assert node.until_settled().state == "succeeded"


def test_a_node_has_ranks_from_their_start_to_their_end_also_for_its_next_worker(node):
    assert not node.daemon.has_ranks
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    assert node.daemon.has_ranks
    node.start_worker()
    node.time.advance(1.0)
    assert node.daemon.has_ranks, "they were found again"
    node.assign(node.assignment(node.script(waiting), action="stop"))
    node.until_settled()
    assert not node.daemon.has_ranks


def test_a_node_has_no_ranks_once_they_ended_though_no_step_has_noticed(node):
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    node.let_end()
    node.until(lambda: not node.daemon.has_ranks)
    assert [attempt.is_over for attempt in node.daemon.attempts] == [False]
    assert node.until_settled().state == "succeeded"


def test_an_attempt_that_waits_to_start_has_no_ranks(node):
    node.machine.spawn = lambda *order: None
    node.assign(node.assignment(node.script(printing("trained"))))
    node.time.advance(10.0)
    assert node.daemon.attempts and not node.daemon.has_ranks


def test_stop_before_the_start_starts_nothing(node):
    node.assign(node.assignment(node.script(waiting), action="stop"))
    assert node.until_settled().state == "stopped"
    assert not (node.dir() / "launch.json").exists()


def test_repeated_assignment_starts_nothing_twice(node):
    assignment = node.assignment(node.script(then(printing("once"), waiting)))
    node.assign(assignment)
    node.until_ready()
    node.assign(assignment)
    node.time.advance(1.0)
    node.let_end()
    node.until_settled()
    node.assign(assignment)  # a late copy of the list
    node.time.advance(1.0)
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "once\n"
    assert node.server.end().state == "succeeded"


def test_an_acknowledged_end_stays_recorded_when_a_late_list_meets_the_end_of_the_run(node):
    """What the exit code of a Slurm job is read from."""
    assignment = node.assignment(node.script(nothing))
    node.assign(assignment)
    node.until_settled()
    node.server.superseded.add(1)  # the last node has told its end meanwhile
    node.assign(assignment)
    node.time.advance(1.0)
    node.until(lambda: not node.daemon.attempts)
    assert read_object(node.dir() / REPORTED_FILE) == {"state": "succeeded"}


def test_lost_replies_change_nothing(node):
    node.server.loses_replies = True
    lines = "\n".join(map(str, range(20)))
    script = node.script(then(events(range(100)), printing(lines), checkpoint("step_7.pt")))
    node.assign(node.assignment(script))
    node.until_settled()
    assert [point[0] for point in node.server.series["train/loss"]] == list(range(100))
    assert node.server.text("logs/rank0.out") == f"{lines}\n"
    assert [(one["path"], one["complete"]) for one in node.server.checkpoints] == [("work/step_7.pt", True)]


def test_a_superseded_attempt_is_ended_and_forgotten(node):
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    node.server.superseded.add(1)
    node.assign()
    node.until(lambda: not node.daemon.attempts)
    assert node.ranks == []
    assert node.server.end() is None
    node.start_worker()
    assert node.daemon.attempts == []


def test_an_attempt_given_up_with_its_node_is_ended_and_its_end_is_told(node):
    assignment = node.assignment(node.script(stubborn))
    node.assign(assignment)
    node.until_ready()
    node.server.given_up.add(1)
    node.assign(assignment.model_copy(update={"action": "stop", "grace_s": 0.5}))
    node.until(lambda: not node.daemon.attempts)
    assert node.ranks == []
    assert node.server.end() is not None


def test_a_list_that_is_late_ends_nothing(node):
    assignment = node.assignment(node.script(waiting))
    node.assign(assignment)
    node.until_ready()
    node.assign()  # written down before the run was placed here, delivered after it
    node.time.advance(30.0)
    assert node.supervisor()["state"] == "running" and node.supervisor()["stop_requested_at"] is None
    node.let_end()
    assert node.until_settled().state == "succeeded"


def test_shutting_down_stops_every_run_and_says_why(node):
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    node.trainings.shut_down()
    end = node.until_settled()
    assert (end.state, end.message) == ("stopped", "the worker was shut down")


@pytest.mark.parametrize("dies_first", [False, True], ids=["stopped", "killed by Slurm before it is stopped"])
def test_why_slurm_ends_a_job_is_left_to_slurm(node, dies_first):
    node.assign(node.assignment(node.script(waiting)))
    node.until_ready()
    if dies_first:
        for rank in node.ranks:
            rank.kill()
    node.trainings.shut_down(cause="slurm")
    assert node.until_settled() is None


def test_a_mistake_of_ours_before_the_start_ends_the_attempt_with_a_sentence(node, monkeypatch):
    def broken(*_):
        raise NameError("name 'nobody' is not defined")

    monkeypatch.setattr("worker.attempt.preparation.prepare", broken)
    node.assign(node.assignment(node.script(nothing)))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert "name 'nobody' is not defined" in end.message


class Gone:
    """A supervisor that ended without a word."""

    pid = 0

    def poll(self):
        return 1


@pytest.fixture
def orders(node):
    """The orders of the supervisors that the node starts, which end without a word."""
    orders = []
    node.machine.spawn = lambda folder, *_: orders.append(json.loads((folder / "launch.json").read_text())) or Gone()
    return orders


def test_nodes_wait_for_the_port_that_rank_0s_node_chooses(node, orders):
    spec = {"nodes": 2, "launcher": "torchrun", "gpus_per_node": 1}
    script = node.script(nothing)
    node.assign(node.assignment(script, node_rank=1, spec=spec))
    node.time.advance(5.0)
    assert orders == [] and not any(report.argv for _, report in node.server.reports)
    endpoint = {"master_addr": "10.0.0.1", "master_port": 4711}
    node.assign(node.assignment(script, node_rank=1, spec=spec, **endpoint))
    node.until(lambda: orders)
    assert {"--node-rank=1", "--master-addr=10.0.0.1", "--master-port=4711"} <= set(orders[0]["argv"])


def test_rank_0s_node_reports_its_port_before_it_starts(node, orders):
    assignment = node.assignment(node.script(nothing), spec={"nodes": 2, "launcher": "torchrun", "gpus_per_node": 1})
    node.assign(assignment)
    node.until(lambda: orders)
    report = node.server.reports[0][1]
    assert report.state == "starting" and report.master_port
    assert f"--master-port={report.master_port}" in orders[0]["argv"]
    assert "--master-addr=127.0.0.1" in orders[0]["argv"]
    node.assign(assignment)  # a list from before the report
    node.until_settled()
    assert {r.master_port for _, r in node.server.reports if r.master_port} == {report.master_port}
    assert node.server.end().reason == Reason.LAUNCH_FAILED


def test_two_attempts_at_once_do_not_disturb_each_other(node):
    first, second = node.script(printing("first"), "a.py"), node.script(lambda process: 3, "b.py")
    node.assign(node.assignment(first, fence=1), node.assignment(second, fence=2, attempt=2))
    node.until(lambda: not node.daemon.attempts)
    assert (node.server.end(1).state, node.server.end(2).state) == ("succeeded", "failed")
    assert node.server.end(2).exit_code == 3


TROUBLES = [
    ServerMistake("Internal error of the dashboard"),
    RequestFailed("the connection broke off"),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: type(trouble).__name__)
def test_failure_of_one_attempt_delays_no_other(node, trouble):
    node.server.fails_at_points[1] = trouble
    first = node.assignment(node.script(then(events(), waiting), "a.py"), fence=1)
    second = node.assignment(node.script(events(), "b.py"), fence=2, attempt=2)
    node.assign(first, second)
    node.until(lambda: node.server.end(2))
    assert node.server.end(2).state == "succeeded" and len(node.server.series["train/loss"]) == 5
    node.until(lambda: (node.dir(1) / "work/ready").exists())
    node.assign(first.model_copy(update={"action": "stop"}))
    node.until(lambda: not node.machine.of_attempt(RUN, 1, 0))
    assert node.server.end(1) is None
    node.server.fails_at_points.clear()
    node.until(lambda: not node.daemon.attempts)
    assert node.server.end(1).state == "stopped"
    assert len(node.server.series["train/loss"]) == 10


def test_a_mistake_of_the_worker_itself_is_told_and_holds_no_slot(node):
    node.server.fails_at_points[1] = ValueError("a mistake of ours")
    node.assign(node.assignment(node.script(then(events(), printing("trained")))))
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == "trained\n"
    (finding,) = [finding for finding in node.server.findings_of[1] if finding.kind == "not read"]
    assert "ValueError: a mistake of ours" in finding.evidence


def test_logs_arrive_while_the_server_makes_mistakes_with_points(node):
    node.server.fails_at_points[1] = ServerMistake("Internal error of the dashboard")
    node.assign(node.assignment(node.script(then(events(), printing("on and on"), waiting))))
    node.until(lambda: node.server.text("logs/rank0.out") == "on and on\n")


def test_a_server_that_is_away_is_asked_by_one_attempt_for_all(node):
    script = node.script(then(events(), waiting))
    assignments = [node.assignment(script, fence=fence, attempt=fence) for fence in (1, 2)]
    node.server.is_away = True
    node.assign(*assignments)
    node.until(lambda: len(node.ranks) == 2)
    node.time.advance(30.0)  # until the pauses are long
    calls = node.server.calls
    node.time.advance(30.0)
    assert node.server.calls - calls <= 12, "one each 2.5 to 5 s, not one of each attempt"
