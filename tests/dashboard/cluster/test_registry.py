"""What a thousand nodes say of themselves is one transaction, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from dashboard.clock import AnchoredTime
from dashboard.cluster.registry import NodeRegistry
from db.engine import Store
from db.nodes.node_queries import nodes
from domain.messages import NodeLoad
from tests.db.cluster import facts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "rankzero.db")
    yield opened
    opened.close()


@pytest.fixture
def registry(store: Store) -> NodeRegistry:
    return NodeRegistry(store, AnchoredTime())


def test_many_heartbeats_are_one_transaction(store: Store, registry: NodeRegistry) -> None:
    ids = [registry.register(facts(f"n{number}"), None).node_id for number in range(50)]
    commits: list[object] = []
    event.listen(store.database.locks, "commit", commits.append)
    for node_id in ids:
        registry.record_contact(node_id, NodeLoad(cpu_percent=7.0, gpus=[{"id": "cpu:1", "foreign": True}]))
        registry.record_contact(node_id)
    registry.write_down()
    registry.write_down()
    assert len(commits) == 1
    known_nodes = nodes(store, AnchoredTime()())
    assert {node.load["cpu_percent"] for node in known_nodes if node.load} == {7.0}
    assert all([device.foreign for device in node.devices] == [False, True] for node in known_nodes)


def test_unwritable_record_is_written_later(
    store: Store, registry: NodeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_id = registry.register(facts("n0"), None).node_id
    before = nodes(store, AnchoredTime()())[0].last_seen
    registry.record_contact(node_id, NodeLoad(cpu_percent=7.0))
    with monkeypatch.context() as patched:
        patched.setattr(store, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            registry.write_down()
    registry.write_down()
    (known_nodes,) = nodes(store, AnchoredTime()())
    assert known_nodes.load is not None and known_nodes.load["cpu_percent"] == 7.0
    assert known_nodes.last_seen > before
