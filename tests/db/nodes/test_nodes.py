"""Nodes register, come back, and are told apart."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from db.attempts.attempt_queries import attempts
from db.exceptions import NoSuchNode, WrongState
from db.nodes.join_tokens import TurnedAway
from db.nodes.node_queries import nodes
from db.nodes.node_reports import (
    Claim,
    IdentityEnded,
    NameTaken,
    RegisteredNode,
    node_of_token,
    nodes_of_runs,
    register_node,
    remove_node,
)
from tests.db.cluster import facts


def test_a_node_that_comes_back_keeps_its_id_and_gets_a_new_token(store):
    first = register_node(store, facts(), None, 1.0)
    second = register_node(store, facts(instance_id="i2"), proof(first), 2.0)
    assert second.node_id == first.node_id
    assert node_of_token(store, second.token) == first.node_id
    assert node_of_token(store, first.token) is None


def test_the_store_holds_no_token(store):
    token = register_node(store, facts(), None, 1.0).token
    with store.read() as session:
        assert token not in str(session.execute(text("select * from nodes")).all())


def test_a_second_worker_of_the_same_name_is_refused_while_the_first_is_alive(store):
    register_node(store, facts(), None, 1.0)
    with pytest.raises(NameTaken, match="--name OTHER"):
        register_node(store, facts(instance_id="i2"), None, 5.0)
    register_node(store, facts(instance_id="i2"), None, 60.0)
    assert len(nodes(store, 60.0)) == 1


def test_a_worker_started_again_is_the_same_node_at_once(store):
    first = register_node(store, facts(info={"place": "b"}), None, 10.0)
    again = register_node(store, facts(instance_id="i2", info={"place": "b"}), proof(first), 10.5)
    assert again.node_id == first.node_id


def test_a_copied_identity_is_refused_while_the_node_is_at_work_elsewhere(store):
    """A container image or a disk with node.json in it, started a second time."""
    first = register_node(store, facts(info={"place": "b"}), None, 10.0)
    copy = facts(instance_id="i2", hostname="gpu-2", info={"place": "c"})
    for claim in (Claim(first.node_id), proof(first)):
        with pytest.raises(NameTaken, match=r"connected from gpu-1 .* remove node/node.json from the copy"):
            register_node(store, copy, claim, 12.0)
    assert node_of_token(store, first.token) == first.node_id
    assert register_node(store, copy, proof(first), 30.0).node_id == first.node_id


def test_earlier_of_two_workers_with_one_identity_is_refused(store):
    first = register_node(store, facts(info={"place": "b"}), None, 10.0)
    register_node(store, facts(instance_id="i2", info={"place": "c"}), proof(first), 60.0)
    with pytest.raises(IdentityEnded, match="was started after it"):
        register_node(store, facts(info={"place": "b"}), Claim(first.node_id, again=True), 61.0)
    assert register_node(store, facts(), Claim(first.node_id, again=True), 80.0).node_id == first.node_id


def test_after_a_store_of_yesterday_was_put_back_every_worker_is_its_node_again(store):
    first = register_node(store, facts(instance_id="yesterday"), None, 10.0)
    back = register_node(store, facts(instance_id="today"), Claim(first.node_id, again=True), 90_000.0)
    assert back.node_id == first.node_id


def test_a_name_whose_node_has_a_run_is_not_taken_over_before_that_counts_as_lost(cluster):
    cluster.launch()
    fence = cluster.assignments()[0].fence
    assert not cluster.assignments()[0].is_known
    cluster.report(fence, "running")
    with pytest.raises(NameTaken, match="is accepted when that node counts as lost"):
        register_node(cluster.store, facts(instance_id="i2"), None, 115.0)
    assert register_node(cluster.store, facts(instance_id="i2"), None, 131.0).node_id == cluster.node_id
    assert cluster.assignments()[0].is_known


def test_a_node_cannot_come_back_under_the_name_of_another(store):
    register_node(store, facts("gpu-1"), None, 1.0)
    other = register_node(store, facts("gpu-2"), None, 1.0)
    with pytest.raises(NameTaken, match="'gpu-1' is already connected"):
        register_node(store, facts("gpu-1", instance_id="i2"), proof(other), 100.0)
    assert register_node(store, facts("gpu-3", instance_id="i2"), proof(other), 100.0).node_id == other.node_id


def test_a_node_with_a_run_is_not_removed_and_one_that_had_one_stays_in_its_history(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    with pytest.raises(WrongState, match=f"Node gpu-1 still has {run_id}; stop it first"):
        remove_node(cluster.store, "gpu-1", 101.0)
    cluster.report(fence, "succeeded")
    assert remove_node(cluster.store, "gpu-1", 102.0) == (cluster.node_id, "gpu-1")
    assert nodes(cluster.store, 103.0) == []
    assert attempts(cluster.store, run_id)[0].tasks[0].node == "gpu-1"
    with pytest.raises(NoSuchNode):
        remove_node(cluster.store, "gpu-1", 104.0)


def test_a_removed_nodes_token_and_identity_end_and_its_name_is_free(store):
    first = register_node(store, facts(), None, 1.0)
    remove_node(store, first.node_id, 60.0)
    gone = node_of_token(store, first.token)
    assert isinstance(gone, TurnedAway) and "gpu-1 was removed at 1970-01-01 00:01 UTC" in gone.message
    with pytest.raises(IdentityEnded, match=r"delete node/node.json"):
        register_node(store, facts(instance_id="i2"), Claim(first.node_id), 61.0)
    assert register_node(store, facts(), None, 62.0).node_id != first.node_id


def test_the_nodes_of_runs_are_those_that_have_or_had_a_part(cluster):
    run_id = cluster.launch()
    register_node(cluster.store, facts("gpu-2"), None, 100.0)
    cluster.report(cluster.assignments()[0].fence, "succeeded")
    assert nodes_of_runs(cluster.store, [run_id, "unknown"]) == {cluster.node_id}
    assert nodes_of_runs(cluster.store, []) == set()


def proof(registration: RegisteredNode) -> Claim:
    return Claim(registration.node_id, proven=True)
