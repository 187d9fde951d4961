"""Guest nodes: apart from ours, left alone, lost and back, and gone when all of them is here."""

from __future__ import annotations

import pytest

from db.attempts.lost_nodes import LostNodes
from db.exceptions import NoSuchNode, WrongState
from db.health import incidents
from db.models import IncidentRow
from db.nodes import node_queries, node_reports
from db.nodes.node_reports import Claim, NameTaken
from db.runs import run_queries, run_requests
from db.scheduling.node_state import registered_nodes
from db.watched import guests
from domain.messages import Delivery, PointBatch, State
from tests.db.task_streams import points_arrived
from tests.db.watched_hosts import Host, watched

LOST_AFTER_S = 30.0


def judged(store, now: float) -> list[str]:
    """Judge, and again when no step has arrived for long; return the runs that changed."""
    lost_nodes = LostNodes()
    return [run_id for at in (now, now + 60.0, now + 61.0) for run_id in lost_nodes.judge(store, at, LOST_AFTER_S)]


def stopped_while_lost(store, **more) -> Host:
    """A guest that fell silent, whose run a person then ended."""
    host = watched(store, **more)
    host.report("running")
    host.now = 200.0
    run_requests.request_stop(store, host.place.run_id, 200.0)
    assert judged(store, 200.0) == [host.place.run_id]
    assert host.run.state == State.STOPPED
    return host


def test_guests_are_no_nodes_of_ours(store, cluster):
    host = watched(store, host="gpu-1")
    assert [node.name for node in node_queries.nodes(store, 100.0)] == ["gpu-1"]
    with store.read() as session:
        assert [node.node_id for node in registered_nodes(session, 100.0)] == [cluster.node_id]
    assert cluster.launch(gpus_per_node=2) and len(cluster.assignments()) == 1
    with pytest.raises(NoSuchNode):
        node_reports.remove_node(store, host.place.node_id, 100.0)


def test_processes_on_one_host_have_names_of_their_own_and_one_row(store):
    hosts = [watched(store, key="k", process=n, processes=8, ranks_here=1) for n in range(8)]
    (row,) = guests.listed(store, 100.0, LOST_AFTER_S)
    assert (row.host, row.processes, row.run_id) == ("gpu-3", 8, hosts[0].place.run_id)
    assert row.devices == ["NVIDIA H200"] * 8 and row.contact == "alive"


def test_a_guest_registers_under_the_name_that_it_was_given(store):
    _, second = (watched(store, key="k", process=n) for n in (0, 1))
    facts = second.request.facts.model_copy(update={"pool": f"watched:{second.place.fence}"})
    claim = Claim(second.place.node_id, proven=True)
    registered = node_reports.register_node(store, facts, claim, 101.0)
    assert registered.node_id == second.place.node_id
    with pytest.raises(NameTaken):
        node_reports.register_node(store, facts.model_copy(update={"name": "gpu-3"}), None, 101.0)


def test_a_silent_guest_ends_nothing(store):
    first, second = (watched(store, key="k", process=n, processes=2, host=f"gpu-{n}") for n in (0, 1))
    first.report("running"), second.report("running")
    first.beat(200.0)
    assert judged(store, 200.0) == []
    assert first.run.state == State.RUNNING and first.run.silent_nodes == ["gpu-1"]
    assert first.assignment.action == "run"


def test_the_run_ends_once_only_a_lost_guest_is_left_of_it(store):
    first, second = (watched(store, key="k", process=n, processes=2, host=f"gpu-{n}") for n in (0, 1))
    first.report("running"), second.report("running")
    first.now = 200.0
    first.report("succeeded")
    judged(store, 200.0)
    assert first.run.state == State.FAILED and first.run.reason == "node lost"
    assert second.assignment.action == "run"


def test_a_lost_guest_that_is_back_tells_its_true_end_and_every_point_once(store):
    host = stopped_while_lost(store)
    batch = PointBatch(path="work/events", generation=0, start=0, end=9, series={"loss": [(1, 0.5, 150.0)]})
    host.now = 3600.0
    before = host.place
    assert host.ask().node_id == before.node_id
    for is_new in (True, False):
        assert points_arrived(store, host.place.node_id, host.place.fence, 0, batch).stored is is_new
    assert host.report("succeeded", ended_at=500.0) == State.SUCCEEDED
    assert (host.run.state, host.run.ended_at, host.run.message) == (State.SUCCEEDED, 500.0, None)
    lines = [line.text for line in run_queries.history(store, host.place.run_id)]
    assert "gpu-3 is back: its command had ended: succeeded" in lines


def test_a_lost_guest_that_still_runs_is_taken_up_again(store):
    host = stopped_while_lost(store, look_only=True)
    host.now = 3600.0
    assert host.report("running") == State.RUNNING
    assert host.assignment.action == "run"  # it may only be looked at
    assert host.run.lost_contact and host.run.ended_at is None


def test_a_run_that_may_only_be_looked_at_is_not_stopped_while_it_is_heard(store):
    host = watched(store, look_only=True, scheduler="Slurm job 4711")
    host.report("running")
    with pytest.raises(WrongState, match=r"--look-only on gpu-3, started by mara \(Slurm job 4711\): stop it there"):
        run_requests.request_stop(store, host.place.run_id, 101.0)
    assert host.run.stop_requested_at is None


def test_a_run_is_neither_resumed_nor_launched_again_from_here(store):
    host = watched(store, name="resnet", tags=["a"], argv=["python", "train.py", "--resume", "x y.pt"])
    host.report("failed", message="It broke.")
    command = "cd /home/mara/vision && rankzero watch --name resnet --tag a -- python train.py --resume 'x y.pt'"
    with pytest.raises(WrongState) as resumed:
        run_requests.resume(store, host.place.run_id, 110.0)
    assert command in str(resumed.value)
    with pytest.raises(WrongState) as launched:
        run_requests.check_launched_here(store, host.place.run_id)
    assert command in str(launched.value)


def test_a_guest_leaves_when_everything_of_it_is_here(store):
    host = watched(store)
    left = Delivery(sent_bytes=1, total_bytes=2)
    host.report("succeeded", delivery=left)
    assert guests.has_to_do(store, host.place.node_id)
    assert guests.remove_gone(store, 200.0) == []
    host.report("succeeded")
    assert not guests.has_to_do(store, host.place.node_id)
    assert guests.remove_gone(store, 105.0) == []  # it is still connected
    assert guests.remove_gone(store, 200.0) == [host.place.node_id]
    assert guests.listed(store, 200.0, LOST_AFTER_S) == []
    assert host.ask().place == "joined"
    assert host.assignment.fence == host.place.fence


def test_a_guest_that_never_comes_back_is_not_shown_for_ever(store):
    host = stopped_while_lost(store)
    assert guests.remove_gone(store, 3600.0) == []
    assert guests.remove_gone(store, 100.0 + guests.KEPT_S) == [host.place.node_id]


def test_nothing_of_a_guest_counts_against_hardware(store, cluster):
    host = watched(store)
    host.report("failed", reason="out of memory", message="It broke.", error={"rank": 0, "fault": "node"})
    with store.read() as session:
        assert session.query(IncidentRow).count() == 0
        assert incidents.in_quarantine(session) == {}
