"""A store that remembers failures: who is left out after the second, what never counts, and how one comes back."""

from __future__ import annotations

import pytest

from db.alerts.run_facts import quarantined
from db.exceptions import NoSuchNode, WrongState
from db.health import quarantine_requests
from db.health.incidents import ranks_were_slow
from db.nodes import node_queries, node_reports, node_requests
from db.runs import run_queries, run_requests
from domain.messages import Device, DeviceFault, HeldDevice, NodeLoad, RankError, Reason, State
from domain.performance.slow_ranks import SlowRank
from domain.requests.errors import InvalidRequest
from tests.db.attempts.test_lost_nodes import Three
from tests.db.cluster import Cluster, facts, send_heartbeat

BROKEN = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
GPUS = [Device(id=f"GPU-{number}", kind="cuda", name="H200") for number in range(4)]


@pytest.fixture
def gpus(store) -> Cluster:
    """A node with four GPUs."""
    return Cluster(store, node_reports.register_node(store, facts("gpu-1", devices=GPUS), None, 100.0).node_id)


def fail(cluster: Cluster, rank: int | None = 0, reason: Reason = Reason.SCRIPT_ERROR, **error) -> None:
    """The attempt that the node has runs for ten seconds and fails."""
    assignment = cluster.assignments()[-1]
    cluster.report(assignment.fence, "running")
    cluster.now += 10
    said = RankError(rank=rank, node_rank=0, **error)
    cluster.report(assignment.fence, "failed", reason=reason, message="rank 0 on gpu-1 failed", error=said)


def break_device(cluster: Cluster, rank: int = 0, **spec) -> str:
    run_id = cluster.launch(**({"gpus_per_node": 4} | spec))
    fail(cluster, rank, exception=BROKEN, fault="device")
    return run_id


def left_out(store) -> dict[str, list[str]]:
    """The devices in quarantine by node; of a whole node its name alone."""
    return {
        node.name: [] if node.quarantine else [device.id for device in node.devices if device.quarantine]
        for node in node_queries.nodes(store, 100.0)
        if any(device.quarantine for device in node.devices)
    }


def test_a_device_is_left_out_after_its_second_failed_attempt_and_comes_back_when_released(gpus):
    break_device(gpus, rank=2)
    assert left_out(gpus.store) == {}
    second = break_device(gpus, rank=2)
    assert left_out(gpus.store) == {"gpu-1": ["GPU-2"]}
    node = node_queries.nodes(gpus.store, gpus.now)[0]
    assert node.free == 3 and "2 attempts failed because of this device" in node.devices[2].quarantine.why
    assert any("GPU GPU-2 of gpu-1 is in quarantine" in line.text for line in run_queries.history(gpus.store, second))

    waits = gpus.launch(gpus_per_node=4)
    view = run_queries.run(gpus.store, waits, gpus.now)
    assert view.state == State.QUEUED
    assert view.waiting_for == ("needs 4 GPUs on one node, 3 are free; 1 GPU of gpu-1 is in quarantine or tested")
    gpus.launch(gpus_per_node=2)
    assert gpus.assignments()[-1].devices == ["GPU-0", "GPU-1"]
    with pytest.raises(WrongState):
        quarantine_requests.release(gpus.store, "gpu-1", "GPU-0", gpus.now)
    with pytest.raises(InvalidRequest):
        quarantine_requests.release(gpus.store, "gpu-1", "GPU-9", gpus.now)
    quarantine_requests.release(gpus.store, "gpu-1", "2", gpus.now)
    assert left_out(gpus.store) == {}
    with pytest.raises(WrongState):
        quarantine_requests.release(gpus.store, "gpu-1", None, gpus.now)
    assert quarantine_requests.incidents(gpus.store, "gpu-1")[0].kind == "released"


def test_a_script_that_fails_on_any_node_puts_nothing_in_quarantine(gpus):
    """However often, and however it fails."""
    endings = [
        {"exception": "ValueError: bad labels", "exit_code": 1},
        {"reason": Reason.EXIT_CODE, "exit_code": 3},
        {"reason": Reason.KILLED, "signal": "SIGSEGV"},
        {"reason": Reason.KILLED, "signal": "SIGKILL"},
        {"reason": Reason.OUT_OF_MEMORY, "exception": "torch.OutOfMemoryError: CUDA out of memory"},
        {"reason": Reason.TIMED_OUT, "exception": "DistBackendError: timeout"},
        {"exception": "RuntimeError: CUDA error: an illegal memory access was encountered"},
        {"rank": None, "reason": Reason.LAUNCH_FAILED},
    ]
    for ending in endings:
        for _ in range(3):
            gpus.launch(gpus_per_node=4)
            fail(gpus, **ending)
    assert left_out(gpus.store) == {}
    remembered = quarantine_requests.incidents(gpus.store, "gpu-1")
    assert len(remembered) == 3 * 7 and not any(one.is_strike for one in remembered)


def test_what_a_person_stopped_is_not_remembered(gpus):
    for _ in range(2):
        run_id = gpus.launch(gpus_per_node=4)
        run_requests.request_stop(gpus.store, run_id, gpus.now)
        fail(gpus, exception=BROKEN, fault="device")
    assert quarantine_requests.incidents(gpus.store, "gpu-1") == []


def test_an_attempt_that_succeeds_in_between_clears_its_devices(gpus):
    break_device(gpus, rank=2)
    gpus.launch(gpus_per_node=4)
    gpus.report(gpus.assignments()[-1].fence, "running")
    gpus.report(gpus.assignments()[-1].fence, "succeeded")
    gpus.now += 10
    break_device(gpus, rank=2)
    assert left_out(gpus.store) == {}


def test_a_report_that_is_repeated_counts_once(gpus):
    gpus.launch(gpus_per_node=4)
    fence = gpus.assignments()[-1].fence
    for _ in range(3):
        error = RankError(rank=0, node_rank=0, fault="device")
        gpus.report(fence, "failed", reason=Reason.SCRIPT_ERROR, message="broken", error=error)
    assert len(quarantine_requests.incidents(gpus.store, "gpu-1")) == 1


def test_an_error_of_the_hardware_is_enough_however_often_it_is_reported(gpus):
    run_id = gpus.launch(gpus_per_node=4)
    program = [DeviceFault(device="GPU-0", kind="Xid", number=45, at=5.0 + second) for second in range(40)]
    signs = [DeviceFault(device="GPU-0", kind="memory errors", number=3, at=9.0)]
    for _ in range(3):
        send_heartbeat(gpus.store, gpus.node_id, gpus.now, NodeLoad(faults=program + signs))
    assert left_out(gpus.store) == {} and len(quarantine_requests.incidents(gpus.store, "gpu-1")) == 2
    fallen = [DeviceFault(device="GPU-1", kind="Xid", number=79, at=50.0)]
    for _ in range(2):
        send_heartbeat(gpus.store, gpus.node_id, gpus.now, NodeLoad(faults=program + fallen))
    assert left_out(gpus.store) == {"gpu-1": ["GPU-1"]}
    quarantine_requests.release(gpus.store, "gpu-1", "GPU-1", gpus.now)
    send_heartbeat(gpus.store, gpus.node_id, gpus.now, NodeLoad(faults=fallen))
    assert left_out(gpus.store) == {}  # it is the same one
    again = [DeviceFault(device="GPU-1", kind="Xid", number=79, at=150.0)]
    send_heartbeat(gpus.store, gpus.node_id, gpus.now, NodeLoad(faults=again))
    assert left_out(gpus.store) == {"gpu-1": ["GPU-1"]}
    told = [line.text for line in run_queries.history(gpus.store, run_id)]
    assert "GPU GPU-1 of gpu-1 is in quarantine: Xid 79 (fallen off the bus)" in told


def test_an_alert_is_told_of_each_quarantine(gpus):
    fallen = [DeviceFault(device="GPU-1", kind="Xid", number=79, at=50.0)]
    assert quarantined(gpus.store) == []
    send_heartbeat(gpus.store, gpus.node_id, gpus.now, NodeLoad(faults=fallen))
    (event,) = quarantined(gpus.store)
    assert event.sentence == "GPU GPU-1 of gpu-1 is in quarantine: Xid 79 (fallen off the bus)"
    assert event.run_id is None and event.key == quarantined(gpus.store)[0].key


def test_a_device_that_is_released_begins_no_quarantine_of_its_node_anew(gpus):
    """Others are told of each quarantine once."""
    fallen = [DeviceFault(device=f"GPU-{number}", kind="Xid", number=79, at=50.0) for number in range(3)]
    send_heartbeat(gpus.store, gpus.node_id, gpus.now, NodeLoad(faults=fallen))
    before = {event.key for event in quarantined(gpus.store)}
    assert left_out(gpus.store) == {"gpu-1": []} and len(before) == 4
    gpus.now += 10
    quarantine_requests.release(gpus.store, "gpu-1", "GPU-0", gpus.now)
    assert {event.key for event in quarantined(gpus.store)} < before and left_out(gpus.store) == {"gpu-1": []}
    assert node_queries.nodes(gpus.store, 100.0)[0].quarantine.why.startswith("2 of its devices")
    quarantine_requests.release(gpus.store, "gpu-1", "GPU-1", gpus.now)
    assert left_out(gpus.store) == {"gpu-1": ["GPU-2"]}


def test_a_machine_that_restarts_twice_under_trainings_is_left_out_as_a_whole(cluster):
    for _ in range(2):
        cluster.launch(gpus_per_node=2)
        fail(cluster, None, Reason.NODE_LOST, fault="node")
    assert left_out(cluster.store) == {}, "it is the only one"
    node_reports.register_node(cluster.store, facts("gpu-2", slots=1), None, cluster.now)
    for _ in range(2):
        assert left_out(cluster.store) == {}
        cluster.launch(gpus_per_node=2)
        fail(cluster, None, Reason.NODE_LOST, fault="node")
    assert left_out(cluster.store) == {"gpu-1": []}
    run_id = cluster.launch(gpus_per_node=2)
    assert run_queries.run(cluster.store, run_id, cluster.now).waiting_for.endswith("; gpu-1 is in quarantine")
    quarantine_requests.release(cluster.store, "gpu-1", None, cluster.now)
    assert cluster.place() == [run_id]


def test_a_restart_avoids_the_device_that_failed_where_another_is_free(gpus):
    run_id = gpus.launch(gpus_per_node=1, max_restarts=3)
    assert gpus.assignments()[-1].devices == ["GPU-0"]
    fail(gpus, reason=Reason.KILLED, exit_code=-11)
    gpus.now += 60
    gpus.place()
    assert gpus.assignments()[-1].devices == ["GPU-1"]
    fail(gpus, reason=Reason.KILLED, exit_code=-7)
    gpus.now += 60
    gpus.place()
    assert gpus.assignments()[-1].devices == ["GPU-2"] and gpus.assignments()[-1].run_id == run_id


def test_a_restart_takes_the_device_that_failed_where_no_other_is_free(gpus):
    gpus.launch(gpus_per_node=4, max_restarts=1)
    fail(gpus, reason=Reason.KILLED, signal="SIGSEGV")
    gpus.now += 60
    gpus.place()
    assert {*gpus.assignments()[-1].devices} == {f"GPU-{number}" for number in range(4)}


def test_a_node_that_loses_contact_under_two_attempts_is_left_out(store):
    three = Three(store)
    for _ in range(2):
        assert left_out(store) == {}
        three.launch()
        lose(three, "b")
    assert left_out(store) == {"b": []}
    found = quarantine_requests.incidents(store, "b")
    assert [one.kind for one in found] == ["lost contact", "lost contact"] and "no contact for" in found[0].text
    assert quarantine_requests.incidents(store, "a") == []
    with pytest.raises(NoSuchNode):
        quarantine_requests.incidents(store, "d")


def test_a_node_that_somebody_takes_away_is_not_at_fault(store):
    three = Three(store)
    for _ in range(3):
        three.launch()
        send_heartbeat(store, three.nodes["b"].node_id, three.now, NodeLoad(leaving=True))
        lose(three, "b")
        send_heartbeat(store, three.nodes["b"].node_id, three.now, NodeLoad())
    node_requests.drain(store, "b", three.now)
    for _ in range(2):
        node_requests.undrain(store, "b")
        three.launch()
        node_requests.drain(store, "b", three.now)
        lose(three, "b")
    assert left_out(store) == {} and len(quarantine_requests.incidents(store, "b")) == 5


def test_silence_of_most_nodes_counts_against_none(store):
    """The dashboard's own network may have failed."""
    three = Three(store)
    for _ in range(3):
        three.launch()
        lose(three, "b", also="c")
    assert left_out(store) == {} and not any(one.is_strike for one in quarantine_requests.incidents(store, "b"))


def lose(three: Three, name: str, also: str = "") -> None:
    """A node falls silent until its attempt has ended, and comes back."""
    three.silent |= {name, *also}
    three.pass_s(45)
    three.report("stopped", "a", message="Stopped.")
    three.pass_s(5)
    three.silent -= {name, *also}
    three.pass_s(5)
    three.report("failed", name)
    three.pass_s(5)


def test_a_device_that_is_not_free_after_an_attempt_is_given_to_no_other(gpus):
    first = gpus.launch(gpus_per_node=2)
    held = [HeldDevice(device="GPU-1", holder="ada: python train.py (process 7, 1 GiB)")]
    gpus.report(gpus.assignments()[-1].fence, "succeeded", held=held)
    waits = gpus.launch(gpus_per_node=4)
    assert "other programs use 1 GPU of gpu-1" in run_queries.run(gpus.store, waits, gpus.now).waiting_for
    told = [line.text for line in run_queries.history(gpus.store, first)]
    assert "GPU GPU-1 of gpu-1 is not free after the attempt: ada: python train.py (process 7, 1 GiB)" in told
    free = NodeLoad(gpus=[{"id": "GPU-1", "foreign": False}])
    send_heartbeat(gpus.store, gpus.node_id, gpus.now, free)
    assert gpus.place() == [waits]


def test_a_rank_that_others_wait_for_is_remembered_once_and_never_counts(gpus):
    gpus.launch(gpus_per_node=4)
    slow = [
        SlowRank(3, "gpu-1", "data", 0.4, 0.1, 0.08, 0.02, 4),
        SlowRank(9, "elsewhere", "cpu", 0.2, 0.1, 0.1, 0.0, 4),
    ]
    for _ in range(3):
        ranks_were_slow(gpus.store, gpus.assignments()[-1].fence, slow, gpus.now)
    (one,) = quarantine_requests.incidents(gpus.store, "gpu-1")
    assert (one.kind, one.device, one.is_strike) == ("slow rank", "GPU-3", False) and "rank 3" in one.text.lower()
    assert left_out(gpus.store) == {}
