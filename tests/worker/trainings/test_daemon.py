"""What a node does with the server's wishes, whatever happens to server, worker and processes meanwhile."""

from __future__ import annotations

import json
import time

import pytest

from domain.messages import Reason
from tests.dashboard.running import wait_for
from tests.worker.node_under_test import RUN, WAITING, checkpoint, events
from worker.node import processes
from worker.node.state_files import REPORTED_FILE, read_object
from worker.session.failures import RequestFailed, ServerMistake


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


def test_points_and_event_files_are_complete_before_the_end_is_reported(node):
    node.assign(node.assignment(node.script(events(steps=range(200)))))
    end = node.until(lambda: node.server.end())
    assert end.state == "succeeded", end
    assert [point[:2] for point in node.server.series["train/loss"]] == [(n, n * 0.5) for n in range(200)]
    (path,) = {name for _, name, _ in node.server.files if "tfevents" in name}
    stored = (node.dir() / path).read_bytes()
    assert next(data for (_, name, _), data in node.server.files.items() if name == path) == stored


DEEP = """
import json, pathlib
pathlib.Path("error.json").write_text("[" * 50_000)
pathlib.Path("trainer_state.json").write_text('{"log_history":' + "[" * 50_000 + "]" * 50_000 + "}")
pathlib.Path("../error.json").write_text('{"message":' * 9_000)
"""


def test_an_unreadable_file_holds_no_slot(node):
    script = node.script(events() + DEEP + "raise ValueError('no luck')\n")
    node.assign(node.assignment(script))
    end = node.until_settled()
    assert end.state == "failed" and "no luck" in end.message
    assert len(node.server.series["train/loss"]) == 5
    (finding,) = [finding for finding in node.server.findings_of[1] if finding.kind == "not read"]
    assert "trainer_state.json" in finding.evidence and "nested too deeply" in finding.evidence


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


def test_an_end_that_cannot_be_explained_is_reported(node, monkeypatch):
    monkeypatch.setattr("worker.attempt.attempt.end_of", lambda *_: 1 / 0)
    node.assign(node.assignment(node.script("raise SystemExit(3)")))
    end = node.until_settled()
    assert (end.state, end.exit_code, end.reason) == ("failed", 3, Reason.EXIT_CODE)


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


def test_a_start_that_waits_for_torch_is_made_when_it_is_imported(node):
    spawn, importing = node.spawn, [True]
    node.spawn = lambda *what: None if importing else spawn(*what)
    node.start_worker()
    node.assign(node.assignment(node.script("print('trained')")))
    for _ in range(10):
        node.turn()
    assert node.server.states() == [] and not node.supervisors
    importing.clear()
    assert node.until_settled().state == "succeeded"


def test_a_node_has_ranks_from_their_start_to_their_end_also_for_its_next_worker(node):
    assert not node.daemon.has_ranks
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    assert node.daemon.has_ranks
    node.start_worker()
    node.turn()
    assert node.daemon.has_ranks, "they were found again"
    node.assign(node.assignment(node.script(WAITING), action="stop"))
    node.until_settled()
    assert not node.daemon.has_ranks


def test_a_node_has_no_ranks_once_they_ended_though_no_step_has_noticed(node):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    node.let_end()
    wait_for(lambda: not node.daemon.has_ranks, "the ranks to end")
    assert [attempt.is_over for attempt in node.daemon.attempts] == [False]
    assert node.until_settled().state == "succeeded"


def test_an_attempt_that_waits_to_start_has_no_ranks(node):
    node.spawn = lambda *what: None
    node.start_worker()
    node.assign(node.assignment(node.script("print('trained')")))
    for _ in range(10):
        node.turn()
    assert node.daemon.attempts and not node.daemon.has_ranks


def test_stop_before_the_start_starts_nothing(node):
    node.assign(node.assignment(node.script(WAITING), action="stop"))
    assert node.until_settled().state == "stopped"
    assert not (node.dir() / "launch.json").exists()


def test_repeated_assignment_starts_nothing_twice(node):
    assignment = node.assignment(node.script("print('once')\n" + WAITING))
    node.assign(assignment)
    node.until_ready()
    node.assign(assignment)
    node.turn()
    node.let_end()
    node.until_settled()
    node.assign(assignment)  # a late copy of the list
    node.turn()
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "once\n"
    assert node.server.end().state == "succeeded"


def test_an_acknowledged_end_stays_recorded_when_a_late_list_meets_the_end_of_the_run(node):
    """What the exit code of a Slurm job is read from."""
    assignment = node.assignment(node.script("pass"))
    node.assign(assignment)
    node.until_settled()
    node.server.superseded.add(1)  # the last node has told its end meanwhile
    node.assign(assignment)
    node.turn()
    node.until(lambda: not node.daemon.attempts)
    assert read_object(node.dir() / REPORTED_FILE) == {"state": "succeeded"}


def test_lost_replies_change_nothing(node):
    node.server.loses_replies = True
    text = "for n in range(20): print(n)\n" + checkpoint("step_7.pt")
    node.assign(node.assignment(node.script(events(steps=range(100)) + text)))
    node.until_settled()
    assert [point[0] for point in node.server.series["train/loss"]] == list(range(100))
    assert node.server.text("logs/rank0.out") == "".join(f"{n}\n" for n in range(20))
    assert [(one["path"], one["complete"]) for one in node.server.checkpoints] == [("work/step_7.pt", True)]


def test_a_superseded_attempt_is_ended_and_forgotten(node):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    node.server.superseded.add(1)
    node.assign()
    node.until(lambda: not node.daemon.attempts)
    assert processes.of_attempt(RUN, 1, 0) == []
    assert node.server.end() is None
    node.start_worker()
    assert node.daemon.attempts == []


def test_an_attempt_given_up_with_its_node_is_ended_and_its_end_is_told(node):
    assignment = node.assignment(node.script(WAITING))
    node.assign(assignment)
    node.until_ready()
    node.server.given_up.add(1)
    node.assign(assignment.model_copy(update={"action": "stop", "grace_s": 0.5}))
    node.until(lambda: not node.daemon.attempts)
    assert processes.of_attempt(RUN, 1, 0) == []
    assert node.server.end() is not None


def test_a_list_that_is_late_ends_nothing(node):
    assignment = node.assignment(node.script(WAITING))
    node.assign(assignment)
    node.until_ready()
    node.assign()  # written down before the run was placed here, delivered after it
    for _ in range(5):
        node.turn()
    assert node.supervisor()["state"] == "running" and node.supervisor()["stop_requested_at"] is None
    node.let_end()
    assert node.until_settled().state == "succeeded"


def test_shutting_down_stops_every_run_and_says_why(node):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    node.daemon.shut_down()
    end = node.until_settled()
    assert (end.state, end.message) == ("stopped", "the worker was shut down")


@pytest.mark.parametrize("dies_first", [False, True], ids=["stopped", "killed by Slurm before it is stopped"])
def test_why_slurm_ends_a_job_is_left_to_slurm(node, dies_first):
    node.assign(node.assignment(node.script(WAITING)))
    node.until_ready()
    if dies_first:
        supervisor = node.supervisors[0].pid
        processes.kill_all(lambda: [p for p in processes.of_attempt(RUN, 1, 0) if p.pid != supervisor], 60)
        wait_for(lambda: node.supervisor()["state"] == "ended", "the supervisor to notice")
    node.daemon.shut_down(cause="slurm")
    assert node.until_settled() is None


def test_shutting_down_in_a_hurry_kills(node):
    node.assign(node.assignment(node.script("import signal\nsignal.signal(15, signal.SIG_IGN)\n" + WAITING)))
    node.until_ready()
    node.daemon.shut_down(600)
    node.until(lambda: node.supervisor()["state"] == "stopping")
    node.daemon.shut_down(0)
    assert node.until_settled().state == "stopped"


def test_a_mistake_of_ours_before_the_start_ends_the_attempt_with_a_sentence(node, monkeypatch):
    def broken(*_):
        raise NameError("name 'nobody' is not defined")

    monkeypatch.setattr("worker.attempt.attempt.prepare", broken)
    node.assign(node.assignment(node.script("")))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert "name 'nobody' is not defined" in end.message


def test_nodes_wait_for_the_port_that_rank_0s_node_chooses(node):
    started = []
    node.daemon._spawn = lambda folder, *_: started.append(order_of(folder)) or Gone()
    spec = {"nodes": 2, "launcher": "torchrun", "gpus_per_node": 1}
    script = node.script("pass")
    node.assign(node.assignment(script, node_rank=1, spec=spec))
    for _ in range(3):
        node.turn()
    assert started == [] and not any(report.argv for _, report in node.server.reports)
    endpoint = {"master_addr": "10.0.0.1", "master_port": 4711}
    node.assign(node.assignment(script, node_rank=1, spec=spec, **endpoint))
    node.until(lambda: started)
    assert {"--node-rank=1", "--master-addr=10.0.0.1", "--master-port=4711"} <= set(started[0]["argv"])


def test_rank_0s_node_reports_its_port_before_it_starts(node):
    spec = {"nodes": 2, "launcher": "torchrun", "gpus_per_node": 1}
    started = []
    node.daemon._spawn = lambda folder, *_: started.append(order_of(folder)) or Gone()
    assignment = node.assignment(node.script("pass"), spec=spec)
    node.assign(assignment)
    node.until(lambda: started)
    report = node.server.reports[0][1]
    assert report.state == "starting" and report.master_port
    assert f"--master-port={report.master_port}" in started[0]["argv"]
    assert "--master-addr=127.0.0.1" in started[0]["argv"]
    node.assign(assignment)  # a list from before the report
    node.turn()
    assert {r.master_port for _, r in node.server.reports if r.master_port} == {report.master_port}
    node.until_settled()
    assert node.server.end().reason == Reason.LAUNCH_FAILED


def order_of(folder):
    return json.loads((folder / "launch.json").read_text())


class Gone:
    """A supervisor that ended without a word."""

    pid = 0

    def poll(self):
        return 1


def test_two_attempts_at_once_do_not_disturb_each_other(node):
    first, second = node.script("print('first')", "a.py"), node.script("raise SystemExit(3)", "b.py")
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
    first = node.assignment(node.script(events() + WAITING, "a.py"), fence=1)
    second = node.assignment(node.script(events(), "b.py"), fence=2, attempt=2)
    node.assign(first, second)
    node.until(lambda: node.server.end(2))
    assert node.server.end(2).state == "succeeded" and len(node.server.series["train/loss"]) == 5
    node.until(lambda: (node.dir(1) / "work/ready").exists())
    node.assign(first.model_copy(update={"action": "stop"}))
    node.until(lambda: not processes.of_attempt(RUN, 1, 0))
    assert node.server.end(1) is None
    node.server.fails_at_points.clear()
    assert node.until(lambda: node.server.end(1)).state == "stopped"
    assert len(node.server.series["train/loss"]) == 10


def test_a_mistake_of_the_worker_itself_is_told_and_holds_no_slot(node):
    node.server.fails_at_points[1] = ValueError("a mistake of ours")
    node.assign(node.assignment(node.script(events() + "print('trained')")))
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == "trained\n"
    (finding,) = [finding for finding in node.server.findings_of[1] if finding.kind == "not read"]
    assert "ValueError: a mistake of ours" in finding.evidence


def test_logs_arrive_while_the_server_makes_mistakes_with_points(node):
    node.server.fails_at_points[1] = ServerMistake("Internal error of the dashboard")
    node.assign(node.assignment(node.script(events() + "print('on and on', flush=True)\n" + WAITING)))
    node.until(lambda: node.server.text("logs/rank0.out") == "on and on\n")


def test_a_server_that_is_away_is_asked_by_one_attempt_for_all(node):
    assignments = [node.assignment(node.script(events() + WAITING), fence=fence, attempt=fence) for fence in (1, 2)]
    node.server.is_away = True
    node.assign(*assignments)
    node.until(lambda: all(processes.of_attempt(RUN, fence, 0) for fence in (1, 2)))
    for _ in range(50):
        calls = node.server.calls
        node.daemon.step(time.monotonic())
        assert node.server.calls - calls <= 1
