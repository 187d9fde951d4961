"""A store on a real file and one on a real PostgreSQL: what holds for one holds for the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from db import engine
from db.engine import Store
from db.nodes.node_reports import register_node
from tests.db import statements_once  # noqa: F401  it acts when it is imported
from tests.db.cluster import Cluster, facts
from tests.db.templates import new_store

NEXT = '''"""Nodes have colours."""

import sqlalchemy as sa
from alembic import op

revision = "REVISION"
down_revision = "BEFORE"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("colour", sa.Text(), nullable=True))
    op.execute("update nodes set colour = 'blue'")
'''
"""What a later version could add."""


def next_schema() -> str:
    """The schema revision of a later version."""
    return f"{int(engine.newest_schema()) + 1:04}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of a store also on PostgreSQL: in lane `real` if marked `both_stores`, else in `long`."""
    if "store_url" in metafunc.fixturenames:
        marks = [pytest.mark.real if metafunc.definition.get_closest_marker("both_stores") else pytest.mark.long]
        both = ["sqlite", pytest.param("postgresql", marks=marks)]
        metafunc.parametrize("store_url", both, indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{new_store(tmp_path / 'rankzero.db')}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(store_url: str, tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = Store.open(store_url, tmp_path / "backups")
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    """An empty store, on SQLite alone."""
    opened = Store.open(new_store(tmp_path / "rankzero.db"), tmp_path / "backups")
    yield opened
    opened.close()


@pytest.fixture
def cluster(store: Store) -> Cluster:
    """A store with one node."""
    return Cluster(store, register_node(store, facts(), None, 100.0).node_id)


@pytest.fixture
def later_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run as a version whose newest migration is NEXT."""
    folder = Path(shutil.copytree(engine.MIGRATIONS, tmp_path / "migrations"))
    migration = NEXT.replace("REVISION", next_schema()).replace("BEFORE", engine.newest_schema())
    (folder / "versions" / f"{next_schema()}_colours.py").write_text(migration)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "MIGRATIONS", folder)
        engine._scripts.cache_clear()
        yield
    engine._scripts.cache_clear()
