"""Opening the store: migrations, damage, copies, one writer."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from db.engine import Store, StoreUnusable
from db.models import Base
from db.nodes.node_reports import register_node
from tests.db.cluster import facts

pytestmark = pytest.mark.both_stores


def test_migrations_make_exactly_the_tables_of_the_models(store):
    with store.database.writer.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)
        cascades = (
            {row.on_delete for row in connection.execute(text("PRAGMA foreign_key_list(series)"))}
            if connection.dialect.name == "sqlite"
            else {"CASCADE"}
        )
    # SQLAlchemy reads no ON DELETE of a reference that a column of SQLite brought with it.
    assert [change for change in differences if [*getattr(change[1], "column_keys", ())] != ["past_fence"]] == []
    assert cascades == {"CASCADE"}


def test_opening_again_finds_what_was_stored(tmp_path: Path):
    first = Store.open(tmp_path / "a.db")
    node_id = register_node(first, facts(), None, 1.0).node_id
    first.close()
    second = Store.open(tmp_path / "a.db")
    with second.read() as session:
        assert session.execute(text("select id from nodes")).scalar() == node_id
    second.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path):
    file = tmp_path / "rankzero.db"
    file.write_bytes(b"this is not a database, it is a letter to my mother" * 100)
    with pytest.raises(StoreUnusable, match="damaged or not an SQLite database"):
        Store.open(file, tmp_path)
    assert file.read_bytes().startswith(b"this is not")


def test_a_backup_under_load_is_whole(sqlite_store, tmp_path: Path):
    store = sqlite_store
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.is_set():
            register_node(store, facts(f"n{number}"), None, 1.0)
            number += 1

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for turn in range(5):
            store.backup(tmp_path / f"copy{turn}.db")
            with sqlite3.connect(tmp_path / f"copy{turn}.db") as copy:
                assert copy.execute("pragma integrity_check").fetchone() == ("ok",)
            copy.close()
    finally:
        stop.set()
        thread.join()


def test_two_writers_never_interleave(store):
    seen = []

    def write(name: str) -> None:
        with store.write() as session:
            seen.append((name, "in"))
            session.execute(text("select 1"))
            seen.append((name, "out"))

    threads = [threading.Thread(target=write, args=(str(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a[0] == b[0] for a, b in zip(seen[::2], seen[1::2], strict=True))


def test_readers_cannot_write(store):
    with pytest.raises(Exception, match=r"read-?only"), store.read() as session:
        session.execute(text("delete from runs"))
