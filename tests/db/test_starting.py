"""Runs on several nodes: who may start when, and what becomes of those who cannot agree."""

from __future__ import annotations

import pytest

from db import nodes, queries, requests
from db.lost import LostNodes
from db.progress import Superseded
from db.states import State
from tests.db.cluster import Cluster, facts

NEW = {
    "path": "/usr/bin/python",
    "python": "3.11.8",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "nccl": "2.21.5",
}
OLD = NEW | {"path": "/old/python", "torch": "2.12.1+cu126"}


@pytest.fixture
def pair(store):
    """Two nodes, named a and b."""
    registered = [nodes.register_node(store, facts(name), None, 100.0).node_id for name in ("a", "b")]
    return [Cluster(store, node_id) for node_id in registered]


def launch(pair) -> tuple[str, int]:
    run_id = pair[0].launch(nodes=2, gpus_per_node=2)
    return run_id, pair[0].wished()[0].fence


def view(cluster, run_id):
    return queries.run(cluster.store, run_id, cluster.now)


def history(cluster, run_id) -> list[str]:
    return [line.text for line in queries.history(cluster.store, run_id)]


def test_nobody_starts_before_everybody_has_spoken(pair):
    first, second = pair
    run_id, fence = launch(pair)
    assert view(first, run_id).waiting_for == "waits for a and b to say which Python trains there"
    assert [cluster.wished()[0].may_start for cluster in pair] == [False, False]
    first.report(fence, "starting", 0, interpreter=NEW)
    assert view(first, run_id).waiting_for == "waits for b to say which Python trains there"
    assert [cluster.wished()[0].may_start for cluster in pair] == [False, False]
    second.report(fence, "starting", 1, interpreter=NEW | {"path": "/other/python"})
    assert view(first, run_id).waiting_for is None
    assert [cluster.wished()[0].may_start for cluster in pair] == [True, True]
    assert view(first, run_id).state == State.STARTING
    (attempt,) = queries.attempts(first.store, run_id)
    assert [part.interpreter["path"] for part in attempt.parts] == ["/usr/bin/python", "/other/python"]


def test_how_far_a_checkpoint_has_come_is_what_a_run_waits_for(pair):
    first, second = pair
    run_id, fence = launch(pair)
    part = {"name": "work/last.pt", "size_bytes": 3 * 2**30}
    first.report(fence, "starting", 0, interpreter=NEW)
    second.report(fence, "starting", 1, fetching=part | {"done_bytes": 5 * 2**20})
    waits = "b fetches the checkpoint work/last.pt: 5 MiB of 3.0 GiB"
    assert view(first, run_id).waiting_for == waits
    second.report(fence, "starting", 1, fetching=part | {"done_bytes": 3 * 2**30, "is_verified": True})
    assert view(first, run_id).waiting_for == "waits for b to say which Python trains there"
    assert "b has fetched the checkpoint work/last.pt (3.0 GiB); its SHA-256 agrees" in history(first, run_id)
    second.report(fence, "starting", 1, interpreter=NEW)
    assert view(first, run_id).waiting_for is None


def test_a_node_alone_that_has_fetched_its_checkpoint_waits_no_more(cluster):
    run_id = cluster.launch(gpus_per_node=2)
    fence = cluster.wished()[0].fence
    part = {"name": "last.pt", "size_bytes": 2048, "done_bytes": 1024}
    cluster.report(fence, "starting", fetching=part)
    assert "last.pt: 1 KiB of 2 KiB" in view(cluster, run_id).waiting_for
    cluster.report(fence, "starting", fetching=part | {"is_verified": True})
    assert view(cluster, run_id).waiting_for is None


def test_a_node_alone_waits_for_nobody(cluster):
    run_id = cluster.launch(gpus_per_node=2)
    assert cluster.wished()[0].may_start and view(cluster, run_id).waiting_for is None


def test_nodes_that_disagree_end_the_attempt_at_once(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, interpreter=NEW)
    assert second.report(fence, "starting", 1, interpreter=OLD) == State.FAILED
    run = view(first, run_id)
    assert (run.state, run.reason, run.waiting_for) == (State.FAILED, "launch failed", None)
    assert run.message.startswith(
        "The nodes disagree on torch: a has torch 2.13.0+cu126 (/usr/bin/python), "
        "b has torch 2.12.1+cu126 (/old/python)."
    )
    assert [cluster.wished() for cluster in pair] == [[], []]
    with pytest.raises(Superseded):
        first.report(fence, "starting", 0)
    with pytest.raises(Superseded):
        second.report(fence, "starting", 1, interpreter=OLD)
    assert first.launch(gpus_per_node=2) and first.wished() + second.wished()  # the devices are free


def test_repeated_reports_are_compared_once(pair):
    first, second = pair
    run_id, fence = launch(pair)
    for _ in range(2):
        first.report(fence, "starting", 0, interpreter=NEW)
        second.report(fence, "starting", 1, interpreter=NEW | {"python": "3.12.1"})
    first.report(fence, "running", 0)
    second.report(fence, "running", 1)
    remarks = [text for text in history(first, run_id) if "different Pythons" in text]
    assert remarks == ["the nodes train with different Pythons: 3.11 on a, 3.12 on b"]
    assert view(first, run_id).state == State.RUNNING


def test_what_a_node_says_later_ends_nothing_that_trains(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, interpreter=NEW)
    second.report(fence, "starting", 1, interpreter=NEW)
    second.report(fence, "running", 1, interpreter=OLD)
    assert view(first, run_id).state == State.STARTING
    assert first.wished()[0].may_start


def test_a_node_that_cannot_start_stops_those_who_wait(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, interpreter=NEW)
    second.report(fence, "failed", 1, reason="launch failed", message="no torch on b")
    assert [wish.action for wish in first.wished()] == ["stop"] and view(first, run_id).waiting_for is None
    assert first.report(fence, "stopped", 0) == State.FAILED
    assert view(first, run_id).message == "no torch on b"


def test_a_stop_while_nodes_wait_starts_nothing(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, interpreter=NEW)
    requests.request_stop(first.store, run_id, 101.0)
    second.report(fence, "starting", 1, interpreter=OLD)  # no disagreement any more: it was to be stopped
    assert [cluster.wished()[0].action for cluster in pair] == ["stop", "stop"]
    first.report(fence, "stopped", 0)
    assert second.report(fence, "stopped", 1) == State.STOPPED


def lose(store, lost: Cluster, alive: Cluster, seconds: float) -> list[str]:
    alive.now = lost.now + seconds
    nodes.node_seen(store, alive.node_id, alive.now)
    return LostNodes().judge(store, alive.now, lost_after_s=30)


def test_a_node_lost_before_the_start_holds_up_nobody(pair, store):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, interpreter=NEW)
    assert lose(store, second, first, 29) == []
    assert lose(store, second, first, 31) == [run_id]
    assert lose(store, second, first, 32) == []
    assert first.wished()[0].action == "stop"
    first.report(fence, "stopped", 0)
    run = view(first, run_id)
    assert (run.state, run.reason) == (State.FAILED, "node lost")
    assert run.message == "The node b was lost before the run started on it: no word from it for 31 s."
    with pytest.raises(Superseded):
        second.report(fence, "starting", 1, interpreter=NEW)
    assert [wish.action for wish in second.wished()] == ["stop"]  # until it has proven that nothing runs


def test_a_node_lost_while_a_stop_is_wished_lets_it_end(pair, store):
    first, second = pair
    run_id, fence = launch(pair)
    requests.request_stop(store, run_id, 101.0)
    assert first.report(fence, "stopped", 0) == State.STOPPING
    assert lose(store, second, first, 31) == [run_id]
    assert view(first, run_id).state == State.STOPPED


def test_once_started_a_silent_node_ends_nothing(pair, store):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, interpreter=NEW)
    second.report(fence, "starting", 1, interpreter=NEW)
    assert lose(store, second, first, 1000) == []
    assert view(first, run_id).state == State.STARTING


def test_a_silent_node_with_a_run_of_its_own_ends_nothing(pair, store):
    first, second = pair
    pair[0].launch(gpus_per_node=2)
    assert lose(store, second, first, 1000) == [] and lose(store, first, second, 1000) == []


def test_the_next_attempt_is_asked_anew(pair):
    first, second = pair
    run_id, fence = launch(pair)
    first.report(fence, "starting", 0, interpreter=NEW)
    second.report(fence, "starting", 1, interpreter=OLD)
    requests.resume(first.store, run_id, 102.0)
    first.place()
    assert [cluster.wished()[0].may_start for cluster in pair] == [False, False]
    again = first.wished()[0].fence
    first.report(again, "starting", 0, interpreter=NEW)
    second.report(again, "starting", 1, interpreter=NEW)
    assert first.wished()[0].may_start
