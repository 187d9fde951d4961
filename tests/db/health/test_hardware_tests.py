"""Tests of a node's devices in the store: what a passed one ends, a wrong result begins, and no answer leaves."""

from __future__ import annotations

import pytest

from db.attempts.lost_nodes import LostNodes
from db.exceptions import WrongState
from db.health import hardware_tests, quarantine_requests
from db.nodes import node_queries, node_reports
from db.runs import run_queries, run_requests
from domain.health.testing import LIMIT_S, DesiredTest, DeviceResult, TestAnswer
from domain.messages import HeldAttempt, NodeLoad, State
from tests.db.cluster import Cluster, facts, send_heartbeat
from tests.db.health.test_incidents import GPUS, break_device, left_out

IDS = [gpu.id for gpu in GPUS]


@pytest.fixture
def gpus(store) -> Cluster:
    """A node with four GPUs."""
    return Cluster(store, node_reports.register_node(store, facts("gpu-1", devices=GPUS), None, 100.0).node_id)


def ask(cluster: Cluster) -> int:
    send_heartbeat(cluster.store, cluster.node_id, cluster.now)
    return hardware_tests.ask(cluster.store, "gpu-1", cluster.now)[0]


def answer(cluster: Cluster, test_id: int, wrong: str = "", speed: float | None = None, undone: str = "") -> str:
    """The node's results: all right, but those of a wrong device, and of one that could not be tested."""
    results = [
        DeviceResult(device=one, part=part, is_right=None if one == undone else one != wrong, text="3 products")
        for one in requested(cluster)[0].devices
        for part in ("matrix products", "memory")
    ]
    sent = TestAnswer(results=results, reduce_bytes_per_s=speed)
    hardware_tests.answered(cluster.store, cluster.node_id, test_id, sent, cluster.now)
    return str(hardware_tests.test_view(cluster.store, test_id, cluster.now).verdict)


def requested(cluster: Cluster) -> list[DesiredTest]:
    with cluster.store.read() as session:
        return hardware_tests.requests(session, cluster.node_id, cluster.now)


def test_a_passed_test_brings_a_device_back(gpus):
    for _ in range(2):
        break_device(gpus, rank=2)
    assert left_out(gpus.store) == {"gpu-1": ["GPU-2"]}
    test_id = ask(gpus)
    assert requested(gpus) == [DesiredTest(test_id=test_id, devices=IDS, kind="cuda")]
    assert ask(gpus) == test_id  # it is under way
    assert answer(gpus, test_id) == "passed" and requested(gpus) == []
    assert left_out(gpus.store) == {}
    assert quarantine_requests.incidents(gpus.store, "gpu-1")[0].kind == "passed test"


def test_a_wrong_result_puts_a_device_in_quarantine_and_a_late_answer_changes_nothing(gpus):
    test_id = ask(gpus)
    assert answer(gpus, test_id, wrong="GPU-3") == "failed"
    assert left_out(gpus.store) == {"gpu-1": ["GPU-3"]}
    late = TestAnswer(results=[DeviceResult(device="GPU-3", part="memory", is_right=True)])
    hardware_tests.answered(gpus.store, gpus.node_id, test_id, late, gpus.now)
    assert left_out(gpus.store) == {"gpu-1": ["GPU-3"]}


def test_what_could_not_be_tested_neither_begins_nor_ends_a_quarantine(gpus):
    assert answer(gpus, ask(gpus), undone="GPU-0") == "unknown" and left_out(gpus.store) == {}
    for _ in range(2):
        break_device(gpus, rank=2)
    assert answer(gpus, ask(gpus), undone="GPU-0") == "unknown"
    unanswered = ask(gpus)
    gpus.now += LIMIT_S
    view = hardware_tests.test_view(gpus.store, unanswered, gpus.now)
    assert (view.verdict, view.results[0].text) == ("unknown", "The node did not answer.")
    assert left_out(gpus.store) == {"gpu-1": ["GPU-2"]} and ask(gpus) != unanswered


def test_an_all_reduce_is_compared_with_the_nodes_own_earlier_ones(gpus):
    verdicts = [answer(gpus, ask(gpus), speed=speed) for speed in (100e9, 110e9, 90e9, 40e9, 60e9)]
    assert verdicts == ["passed", "passed", "passed", "failed", "passed"]
    assert left_out(gpus.store) == {}  # slow is not wrong


def test_only_devices_that_no_run_has_are_tested_and_no_run_gets_them_meanwhile(gpus):
    gpus.launch(gpus_per_node=2)
    test_id = ask(gpus)
    assert requested(gpus)[0].devices == ["GPU-2", "GPU-3"]
    waits = gpus.launch(gpus_per_node=1)
    assert waits not in {assignment.run_id for assignment in gpus.assignments()}
    answer(gpus, test_id)
    assert gpus.place() == [waits]
    gpus.launch(gpus_per_node=1)
    with pytest.raises(WrongState, match="in use"):
        ask(gpus)


def test_a_node_without_contact_is_not_asked(gpus):
    gpus.now += 60
    with pytest.raises(WrongState, match="gpu-1 is out of contact"):
        hardware_tests.ask(gpus.store, "gpu-1", gpus.now)
    assert node_queries.nodes(gpus.store, gpus.now)[0].state == "lost"


def test_devices_that_a_lost_or_an_unknown_attempt_still_has_are_not_tested(gpus):
    run_id = gpus.launch(gpus_per_node=1)
    gpus.report(gpus.assignments()[-1].fence, "running")
    run_requests.request_stop(gpus.store, run_id, gpus.now)
    gpus.now += 600
    assert LostNodes().judge(gpus.store, gpus.now, 30.0) == [run_id]
    assert run_queries.run(gpus.store, run_id, gpus.now).state == State.STOPPED
    unknown = HeldAttempt(run_id="other", attempt=1, fence=99, devices=["GPU-3"])
    send_heartbeat(gpus.store, gpus.node_id, gpus.now, NodeLoad(held=[unknown]))
    hardware_tests.ask(gpus.store, "gpu-1", gpus.now)
    assert requested(gpus)[0].devices == ["GPU-1", "GPU-2"]
