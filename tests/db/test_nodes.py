"""Nodes register, come back, and are told apart."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from db.nodes import NameTaken, node_of_token, register_node
from db.queries import nodes
from tests.db.cluster import facts


def test_a_node_that_comes_back_keeps_its_id_and_gets_a_new_token(store):
    first = register_node(store, facts(), None, 1.0)
    second = register_node(store, facts(instance_id="i2", started_at=2.0), first.node_id, 2.0)
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


def test_of_two_workers_with_one_identity_the_later_is_believed(store):
    first = register_node(store, facts(started_at=10.0), None, 10.0)
    register_node(store, facts(instance_id="i2", started_at=20.0), first.node_id, 20.0)
    with pytest.raises(NameTaken, match="started later"):
        register_node(store, facts(started_at=10.0), first.node_id, 21.0)
