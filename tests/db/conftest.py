"""A store on a real file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.engine import Store
from db.nodes import register_node
from tests.db.cluster import Cluster, facts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "rankzero.db", tmp_path / "backups")
    yield opened
    opened.close()


@pytest.fixture
def cluster(store: Store) -> Cluster:
    return Cluster(store, register_node(store, facts(), None, 100.0).node_id)
