"""Runs on several nodes: who may start when, and what becomes of those who cannot agree."""

from __future__ import annotations

import pytest

from db.attempts import attempt_queries
from db.attempts.lost_nodes import LostNodes
from db.checkpoints import checkpoint_reports
from db.exceptions import Superseded
from db.health import quarantine_requests
from db.nodes import node_reports
from db.preflight import preflight_sessions, start_gate
from db.runs import deletion, run_queries, run_requests
from db.tasks import task_reports
from domain.messages import CheckAnswer, CheckpointOffer, Measured, NodeCheck, Reached, State, TaskReport
from tests.db.cluster import Cluster, facts, send_heartbeat
from tests.domain.preflight.node_checks import GOOD, way

NEW = {
    "path": "/usr/bin/python",
    "python": "3.11.8",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "nccl": "2.21.5",
}
OLD = NEW | {"path": "/old/python", "torch": "2.12.1+cu126"}
ENDPOINT = {"master_addr": "10.0.0.1", "master_port": 4711}


def ready(node_rank: int, interpreter=NEW, reached=None, **details) -> dict:
    """What a node reports that is well and has brought everything."""
    ways = [] if node_rank == 0 else [reached or way()]
    facts = NodeCheck(**GOOD | {"interpreter": interpreter, "reached": ways} | details)
    return {"interpreter": interpreter, "preflight": facts} | (ENDPOINT if node_rank == 0 else {})


@pytest.fixture
def pair(store):
    """Two nodes, named a and b."""
    registered = [node_reports.register_node(store, facts(name), None, 100.0).node_id for name in ("a", "b")]
    return [Cluster(store, node_id) for node_id in registered]


def launch(pair) -> tuple[str, int]:
    run_id = pair[0].launch(nodes=2, gpus_per_node=2)
    return run_id, pair[0].assignments()[0].fence


def view(cluster, run_id):
    return run_queries.run(cluster.store, run_id, cluster.now)


def history(cluster, run_id) -> list[str]:
    return [line.text for line in run_queries.history(cluster.store, run_id)]


def test_no_node_starts_before_all_have_reported(pair):
    first, second = pair
    run_id, fence = launch(pair)
    assert view(first, run_id).waiting_for == "waits in preflight for a and b"
    assert [cluster.assignments()[0].may_start for cluster in pair] == [False, False]
    first.report(fence, "starting", 0, **ready(0, NEW))
    assert view(first, run_id).waiting_for == "waits in preflight for b"
    assert [cluster.assignments()[0].may_start for cluster in pair] == [False, False]
    second.report(fence, "starting", 1, **ready(1, NEW | {"path": "/other/python"}))
    assert view(first, run_id).waiting_for is None
    assert [cluster.assignments()[0].may_start for cluster in pair] == [True, True]
    assert view(first, run_id).state == State.STARTING
    (attempt,) = attempt_queries.attempts(first.store, run_id)
    assert [task.interpreter["path"] for task in attempt.tasks] == ["/usr/bin/python", "/other/python"]


def test_how_far_a_checkpoint_has_come_is_what_a_run_waits_for(pair):
    first, second = pair
    run_id, fence = launch(pair)
    task = {"name": "work/last.pt", "size_bytes": 3 * 2**30}
    first.report(fence, "starting", 0, **ready(0))
    second.report(fence, "starting", 1, fetching=task | {"done_bytes": 5 * 2**20})
    waits = "b fetches the checkpoint work/last.pt: 5 MiB of 3.0 GiB"
    assert view(first, run_id).waiting_for == waits
    second.report(fence, "starting", 1, fetching=task | {"done_bytes": 3 * 2**30, "is_verified": True})
    assert view(first, run_id).waiting_for == "waits in preflight for b"
    assert "b has fetched the checkpoint work/last.pt (3.0 GiB); its SHA-256 agrees" in history(first, run_id)
    second.report(fence, "starting", 1, **ready(1))
    assert view(first, run_id).waiting_for is None


def test_a_node_alone_that_has_fetched_its_checkpoint_waits_no_more(cluster):
    run_id = cluster.launch(gpus_per_node=2)
    fence = cluster.assignments()[0].fence
    task = {"name": "last.pt", "size_bytes": 2048, "done_bytes": 1024}
    cluster.report(fence, "starting", fetching=task)
    assert "last.pt: 1 KiB of 2 KiB" in view(cluster, run_id).waiting_for
    cluster.report(fence, "starting", fetching=task | {"is_verified": True})
    assert view(cluster, run_id).waiting_for is None


def test_a_node_alone_waits_for_nobody(cluster):
    run_id = cluster.launch(gpus_per_node=2)
    assert cluster.assignments()[0].may_start and view(cluster, run_id).waiting_for is None


def test_nodes_that_disagree_end_the_attempt_at_once(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0, NEW))
    assert second.report(fence, "starting", 1, **ready(1, OLD)) == State.FAILED
    run = view(first, run_id)
    assert (run.state, run.reason, run.waiting_for) == (State.FAILED, "preflight", None)
    assert run.message.startswith(
        "The nodes disagree on torch: a has torch 2.13.0+cu126 (/usr/bin/python), "
        "b has torch 2.12.1+cu126 (/old/python)."
    )
    assert [cluster.assignments() for cluster in pair] == [[], []]
    with pytest.raises(Superseded):
        first.report(fence, "starting", 0)
    with pytest.raises(Superseded):
        second.report(fence, "starting", 1, **ready(1, OLD))
    assert first.launch(gpus_per_node=2) and first.assignments() + second.assignments()  # the devices are free


def test_repeated_reports_are_compared_once(pair):
    first, second = pair
    run_id, fence = launch(pair)
    for _ in range(2):
        first.report(fence, "starting", 0, **ready(0, NEW))
        second.report(fence, "starting", 1, **ready(1, NEW | {"python": "3.12.1"}))
    first.report(fence, "running", 0)
    second.report(fence, "running", 1)
    remarks = [text for text in history(first, run_id) if "different Pythons" in text]
    assert remarks == ["the nodes train with different Pythons: 3.11 on a, 3.12 on b"]
    assert view(first, run_id).state == State.RUNNING


def test_late_report_of_a_node_ends_no_training(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0, NEW))
    second.report(fence, "starting", 1, **ready(1, NEW))
    second.report(fence, "running", 1, **ready(1, OLD))
    assert view(first, run_id).state == State.STARTING
    assert first.assignments()[0].may_start


def test_a_node_that_cannot_start_stops_those_who_wait(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0, NEW))
    second.report(fence, "failed", 1, reason="launch failed", message="no torch on b")
    assert [assignment.action for assignment in first.assignments()] == ["stop"]
    assert first.report(fence, "stopped", 0) == State.FAILED
    assert view(first, run_id).message == "no torch on b"


def test_a_stop_while_nodes_wait_starts_nothing(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0, NEW))
    run_requests.request_stop(first.store, run_id, 101.0)
    second.report(fence, "starting", 1, **ready(1, OLD))  # no disagreement any more: it was to be stopped
    assert [cluster.assignments()[0].action for cluster in pair] == ["stop", "stop"]
    first.report(fence, "stopped", 0)
    assert second.report(fence, "stopped", 1) == State.STOPPED


def lose(store, lost: Cluster, alive: Cluster, seconds: float) -> list[str]:
    alive.now = lost.now + seconds
    send_heartbeat(store, alive.node_id, alive.now)
    return LostNodes().judge(store, alive.now, lost_after_s=30)


def test_a_node_lost_before_the_start_holds_up_nobody(pair, store):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0, NEW))
    assert lose(store, second, first, 29) == []
    assert lose(store, second, first, 31) == [run_id]
    assert lose(store, second, first, 32) == []
    assert first.assignments()[0].action == "stop"
    first.report(fence, "stopped", 0)
    run = view(first, run_id)
    assert (run.state, run.reason) == (State.FAILED, "node lost")
    assert run.message == "The node b was lost before the run started on it: it has been silent for 31 s."
    with pytest.raises(Superseded):
        second.report(fence, "starting", 1, **ready(1))
    assert [assignment.action for assignment in second.assignments()] == [
        "stop"
    ]  # until it has proven that nothing runs


def test_node_lost_during_a_stop_lets_the_run_end(pair, store):
    first, second = pair
    run_id, fence = launch(pair)
    run_requests.request_stop(store, run_id, 101.0)
    assert first.report(fence, "stopped", 0) == State.STOPPING
    assert lose(store, second, first, 31) == [run_id]
    assert view(first, run_id).state == State.STOPPED


def test_once_started_a_silent_node_ends_nothing(pair, store):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0, NEW))
    second.report(fence, "starting", 1, **ready(1, NEW))
    assert lose(store, second, first, 1000) == []
    assert view(first, run_id).state == State.STARTING


def test_a_silent_node_with_a_run_of_its_own_ends_nothing(pair, store):
    first, second = pair
    pair[0].launch(gpus_per_node=2)
    assert lose(store, second, first, 1000) == [] and lose(store, first, second, 1000) == []


def test_the_next_attempt_is_asked_anew(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0, NEW))
    second.report(fence, "starting", 1, **ready(1, OLD))
    run_requests.resume(first.store, run_id, 102.0)
    first.place()
    assert [cluster.assignments()[0].may_start for cluster in pair] == [False, False]
    again = first.assignments()[0].fence
    first.report(again, "starting", 0, **ready(0, NEW))
    second.report(again, "starting", 1, **ready(1, NEW))
    assert first.assignments()[0].may_start


def cells(pair, run_id) -> dict:
    view = start_gate.preflight_of_run(pair[0].store, run_id)
    return {(each.row, each.node, each.peer): each.state for each in view.cells}


def test_a_run_that_fails_preflight_says_which_cell_and_the_matrix_stays(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0))
    assert cells(pair, run_id)["alive", "b", None] == "waiting"
    lost = Reached(node_rank=0, address="10.0.0.1", port=4711, trouble="silent", problem="no answer in 2 s")
    blocked = ready(1, reached=lost, is_prepared=False)
    assert second.report(fence, "starting", 1, **blocked) == State.FAILED  # before its code is there
    run = view(first, run_id)
    assert (run.reason, run.message) == (
        "preflight",
        "Preflight: reach, b → a: no answer in 2 s at 10.0.0.1:4711.",
    )
    assert "open the TCP ports of a to b" in run.next_step
    details = cells(pair, run_id)
    assert details["reach", "b", "a"] == "failed" and details["alive", "b", None] == "ok"
    assert "waiting" not in details.values()
    (remembered,) = quarantine_requests.incidents(first.store, "b")
    assert (remembered.kind, remembered.is_strike) == ("preflight", False)
    assert remembered.text.startswith("reach: no answer in 2 s") and not quarantine_requests.incidents(first.store, "a")


def test_a_way_to_a_port_that_was_given_up_says_nothing(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0))
    gone = way(port=4710, trouble="refused", problem="connection refused")
    second.report(fence, "starting", 1, **ready(1, reached=gone))
    assert cells(pair, run_id)["reach", "b", "a"] == "waiting" and not first.assignments()[0].may_start
    second.report(fence, "starting", 1, **ready(1))
    assert first.assignments()[0].may_start


def test_the_room_that_is_needed_is_that_of_the_checkpoints_before(pair, store):
    first, second = pair
    run_id, fence = launch(pair)
    for cluster, rank in ((first, 0), (second, 1)):
        cluster.report(fence, "starting", rank, **ready(rank))
    offer = CheckpointOffer(path="a.pt", size_bytes=10 * 1024**3, sha256="a" * 64, written_at=1.0)
    checkpoint_reports.offered(store, first.node_id, fence, 0, offer, 101.0)
    first.report(fence, "failed", 0)
    second.report(fence, "failed", 1)
    run_requests.resume(store, run_id, 102.0)
    first.place()
    again = first.assignments()[0].fence
    assert first.report(again, "starting", 0, **ready(0, disk_free_bytes=20 * 1024**3)) == State.FAILED
    assert view(first, run_id).message == "Preflight: disk, a: 20.0 GiB free, 30.2 GiB needed."


def test_a_script_that_is_missing_on_one_node_is_a_red_cell(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, **ready(0))
    text = "The script train.py does not exist on node b."
    missing = ready(1, is_prepared=False, problem=text)
    assert second.report(fence, "failed", 1, reason="script missing", message=text, **missing) == State.FAILED
    assert (view(first, run_id).reason, view(first, run_id).message) == ("script missing", text)
    assert cells(pair, run_id)["script", "b", None] == "failed"


class Measuring:
    """Both nodes answer what the gate asks of them for the bandwidth."""

    def __init__(self, pair) -> None:
        self.pair, self.store = pair, pair[0].store

    def start(self, fence: int) -> None:
        for rank, cluster in enumerate(self.pair):
            report = TaskReport(state="starting", **ready(rank))
            task_reports.task_reported(self.store, cluster.node_id, fence, rank, report, 101.0, measure=True)

    def answer(self, speed: float | None, problem: str | None = None) -> list[str]:
        changed: list[str] = []
        details = {"facts": NodeCheck(**GOOD)}, {"reached": [way(0), way(1)]}
        for stage, said in enumerate((*details, {"measured": Measured(bytes_per_s=speed, problem=problem)})):
            for cluster in self.pair:
                (assignment,) = preflight_sessions.check_requests(self.store, cluster.node_id)
                answer = CheckAnswer(stage=stage, **said)
                changed += start_gate.check_answered(self.store, cluster.node_id, assignment.check_id, answer, 102.0)[1]
        return changed


def test_new_nodes_are_measured_once_before_they_train(pair):
    measuring = Measuring(pair)
    run_id, fence = launch(pair)
    measuring.start(fence)
    assert view(pair[0], run_id).waiting_for == "measures the bandwidth between a and b"
    assert not pair[0].assignments()[0].may_start
    assert measuring.answer(1.5e9) == [run_id]
    assert [cluster.assignments()[0].may_start for cluster in pair] == [True, True]
    assert "bandwidth measured: 1.5 GB/s a – b" in history(pair[0], run_id)
    assert start_gate.preflight_of_run(pair[0].store, run_id).bandwidth == [
        [None, 1.5e9],
        [1.5e9, None],
    ]
    for rank, cluster in enumerate(pair):
        cluster.report(fence, "succeeded", rank)
    _, fence = launch(pair)
    measuring.start(fence)
    assert (
        pair[0].assignments()[0].may_start and preflight_sessions.check_requests(pair[0].store, pair[0].node_id) == []
    )
    deletion.erase(pair[0].store, run_id, 103.0)


def test_nodes_between_which_nothing_goes_start_nothing(pair):
    measuring = Measuring(pair)
    run_id, fence = launch(pair)
    measuring.start(fence)
    assert measuring.answer(None, "no all-reduce within 75 s") == [run_id]
    run = view(pair[0], run_id)
    assert (run.state, run.reason) == (State.FAILED, "preflight")
    assert run.message == "Preflight: bandwidth, a → b: no all-reduce within 75 s."
