"""The queue on a real store: who starts, why the others wait, and what a node gives."""

from __future__ import annotations

import pytest

from db.attempts import attempt_queries
from db.exceptions import NoSuchNode
from db.nodes import node_queries, node_reports, node_requests
from db.preflight import preflight_sessions
from db.runs import run_queries, run_requests
from db.scheduling import queue_placement
from db.scheduling.node_state import node_states
from domain.liveness import LOST_AFTER_S, SILENT_AFTER_S
from domain.messages import NodeLoad, State
from domain.requests.errors import InvalidRequest
from tests.db.cluster import Cluster, facts, send_heartbeat


@pytest.fixture
def two(store) -> tuple[Cluster, Cluster]:
    """Two nodes with two slots each."""
    ids = [
        node_reports.register_node(store, facts(name, labels={"rack": name}), None, 100.0).node_id
        for name in ("a", "b")
    ]
    return Cluster(store, ids[0]), Cluster(store, ids[1])


def view(cluster, run_id):
    shown = run_queries.run(cluster.store, run_id, cluster.now)
    assert shown is not None
    return shown


def nodes_of(cluster, run_id):
    return [task.node for task in attempt_queries.attempts(cluster.store, run_id)[-1].tasks]


def train(cluster, fence, steps=100, of=300):
    """So many steps of a second each."""
    cluster.report(fence, "running")
    loss = [(step, 1.0, float(step)) for step in range(1, steps + 1)]
    cluster.points(fence, 0, 9, {"train/loss": loss, "train/total_steps": [(1, float(of), 1.0)]})


def test_a_run_that_waits_says_for_whom_and_when_it_will_start(cluster):
    cluster.launch(gpus_per_node=2)
    train(cluster, cluster.assignments()[0].fence)
    second = cluster.launch(gpus_per_node=1)
    waiting = view(cluster, second)
    assert waiting.waiting_for == "needs 1 slot, none is free; image_classifier on gpu-1 ends in about 3 min"
    assert waiting.expected_start_at == 300.0
    assert cluster.place() == []
    cluster.report(cluster.assignments()[0].fence, "succeeded")
    assert cluster.place() == [second]
    assert (view(cluster, second).waiting_for, view(cluster, second).expected_start_at) == (None, None)


def test_where_the_script_announces_no_steps_those_of_the_launch_say_when_it_ends(cluster):
    cluster.launch(gpus_per_node=2, max_steps=250)
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    cluster.points(fence, 0, 9, {"train/loss": [(step, 1.0, 2.0 * step) for step in range(1, 101)]})
    assert view(cluster, cluster.launch(gpus_per_node=1)).expected_start_at == cluster.now + 300.0


@pytest.mark.parametrize(
    ("spec", "told"),
    [({"epochs": 8}, {}), ({"args": ["--epochs=8"]}, {}), ({}, {"train/total_epochs": [(0, 8.0, 1.0)]})],
)
def test_where_steps_are_unknown_epochs_say_when_it_ends(cluster, spec, told):
    cluster.launch(gpus_per_node=2, **spec)
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    epochs = [(epoch, float(epoch), 50.0 * epoch) for epoch in (1, 2)]
    losses = [(epoch, 1.0, 50.0 * epoch) for epoch in (1, 2)]
    cluster.points(fence, 0, 9, {"epoch": epochs, "loss": losses} | told, source="printed")
    assert cluster.now == 100.0
    waiting = view(cluster, cluster.launch(gpus_per_node=1))
    assert waiting.expected_start_at == 400.0
    assert waiting.waiting_for.endswith("ends in about 5 min")


def test_a_run_that_is_being_stopped_ends_within_its_grace(cluster):
    first = cluster.launch(gpus_per_node=2, stop_grace_s=20)
    train(cluster, cluster.assignments()[0].fence)
    run_requests.request_stop(cluster.store, first, 101.0)
    assert view(cluster, cluster.launch(gpus_per_node=1)).expected_start_at == 121.0


def test_a_resumed_run_is_known_to_take_what_was_left(cluster):
    first = cluster.launch(gpus_per_node=2)
    train(cluster, cluster.assignments()[0].fence)
    cluster.report(cluster.assignments()[0].fence, "failed", message="killed")
    other = cluster.launch(gpus_per_node=2)
    train(cluster, cluster.assignments()[0].fence)
    run_requests.resume(cluster.store, first, 100.0)
    last = cluster.launch(gpus_per_node=2)
    assert view(cluster, first).expected_start_at == 300.0
    assert view(cluster, last).expected_start_at == 600.0
    assert view(cluster, other).state == State.RUNNING


def test_priority_goes_before_who_came_first(cluster):
    cluster.launch(gpus_per_node=2)
    usual, urgent = cluster.launch(gpus_per_node=2), cluster.launch(gpus_per_node=2, priority=3)
    cluster.report(cluster.assignments()[0].fence, "succeeded")
    cluster.place()
    assert view(cluster, urgent).state == State.STARTING
    assert view(cluster, usual).waiting_for.endswith(f"{urgent} on gpu-1 does not say when it ends")


def test_labels_and_names_choose_the_node(two):
    first, _ = two
    assert nodes_of(first, first.launch(gpus_per_node=1, labels={"rack": "b"})) == ["b"]
    assert nodes_of(first, first.launch(gpus_per_node=1, on_nodes=["a"])) == ["a"]
    with pytest.raises(InvalidRequest, match="labelled rack=c"):
        first.launch(gpus_per_node=1, labels={"rack": "c"})
    assert view(first, first.launch(gpus_per_node=1, on_nodes=["c"], wait_for_nodes=True)).waiting_for == (
        "needs 1 slot on c; no such node has joined"
    )


def test_a_draining_node_gets_nothing_new_until_it_is_told_otherwise(two):
    first, second = two
    running = first.launch(gpus_per_node=1, on_nodes=["a"])
    node_requests.drain(first.store, "a", 101.0)
    by_name = {node.name: node for node in node_queries.nodes(first.store, 101.0)}
    assert (by_name["a"].draining, by_name["a"].free, by_name["b"].free) == (True, 0, 2)
    assert nodes_of(first, first.launch(gpus_per_node=2)) == ["b"]
    waiting = first.launch(gpus_per_node=1, on_nodes=["a"])
    assert view(first, waiting).waiting_for == "needs 1 slot on a; a is draining"
    assert view(first, running).state == State.STARTING
    node_reports.register_node(first.store, facts("a", labels={"rack": "a"}), first.node_id, 102.0)
    assert first.place() == []
    assert node_requests.undrain(first.store, second.node_id) == second.node_id
    assert node_requests.undrain(first.store, "a") == first.node_id
    assert first.place() == [waiting]
    with pytest.raises(NoSuchNode, match="no node 'x'"):
        node_requests.drain(first.store, "x", 1.0)


def test_devices_in_use_by_other_programs_are_not_given_out(cluster):
    load = NodeLoad(gpus=[{"id": "cpu:0", "foreign": True}, {"id": "cpu:1", "foreign": False}])
    send_heartbeat(cluster.store, cluster.node_id, cluster.now, load)
    assert node_queries.nodes(cluster.store, cluster.now)[0].free == 1
    assert view(cluster, cluster.launch()).spec.gpus_per_node == 1
    assert cluster.assignments()[0].devices == ["cpu:1"]
    waiting = cluster.launch(gpus_per_node=2)
    assert view(cluster, waiting).waiting_for == (
        "needs 2 slots on one node, none is free; other programs use 1 slot of gpu-1"
    )
    busy = NodeLoad(gpus=[{"id": "cpu:0", "foreign": True}, {"id": "cpu:1", "foreign": True}])
    send_heartbeat(cluster.store, cluster.node_id, cluster.now, busy)
    ours = node_queries.nodes(cluster.store, cluster.now)[0].devices[1]
    assert ours.run_id is not None and not ours.foreign  # our run's own processes, not known by their ids


def test_a_node_not_heard_of_gets_nothing(two):
    first, _ = two
    send_heartbeat(first.store, first.node_id, 200.0)
    run_id = run_requests.submit(first.store, view_spec(gpus_per_node=2, on_nodes=["b"]), 200.0)
    queue_placement.place_queue(first.store, 200.0, 30.0, 300.0)
    assert view(first, run_id).waiting_for == "needs 2 slots on b; no contact with b"
    queue_placement.place_queue(first.store, 200.0, 30.0, 60.0)
    assert view(first, run_id).waiting_for == "needs 2 slots on b; b is lost"


def view_spec(**asked):
    return run_requests.RunSpec(target="image_classifier", **asked)


def test_devices_taken_meanwhile_are_not_given_out_twice(cluster, monkeypatch):
    run_id = run_requests.submit(cluster.store, view_spec(gpus_per_node=2), 100.0)
    decide = queue_placement.place

    def place_while_another_does(*given):
        decision = decide(*given)
        monkeypatch.setattr(queue_placement, "place", decide)
        other = run_requests.submit(cluster.store, view_spec(gpus_per_node=2, priority=9), 100.0)
        assert other in cluster.place()
        return decision

    monkeypatch.setattr(queue_placement, "place", place_while_another_does)
    assert cluster.place() == []
    assert view(cluster, run_id).state == State.QUEUED
    assert len(cluster.assignments()) == 1


@pytest.mark.parametrize("silent_s", [0.0, SILENT_AFTER_S - 1, SILENT_AFTER_S, 12.0, 14.9, LOST_AFTER_S])
def test_a_node_is_alive_for_pages_placement_and_preflight_alike(cluster, silent_s):
    send_heartbeat(cluster.store, cluster.node_id, cluster.now)
    now = cluster.now + silent_s
    run_id = run_requests.submit(cluster.store, view_spec(), now)
    (shown,) = node_queries.nodes(cluster.store, now)
    with cluster.store.read() as session:
        (placed,) = node_states(session, now, {})
    is_alive = silent_s < SILENT_AFTER_S
    assert shown.state == placed.contact
    assert (shown.state == "alive") == is_alive
    assert (queue_placement.place_queue(cluster.store, now) == [run_id]) or not is_alive
    assert (view(cluster, run_id).state == "starting") == is_alive
    if is_alive:
        assert preflight_sessions.ask(cluster.store, None, False, now)
    else:
        with pytest.raises(InvalidRequest, match="no node is online"):
            preflight_sessions.ask(cluster.store, None, False, now)
