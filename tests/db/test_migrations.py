"""A store of an earlier version opens with all tables and rows, and committed migrations stay as they are."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine, select, text

from db import engine
from db.engine import Store, StoreUnusable
from db.models import Run, User
from db.nodes.node_reports import register_node
from tests.db.cluster import facts
from tests.db.fixtures import next_schema

pytestmark = pytest.mark.both_stores

HASHES = {
    "0001_first_tables.py": "2c757418bf21b85934c5b2e0c09cef0e01f3dc7f066bae41444b768cb5da0507",
    "0002_health.py": "ef0ce4d3341f119a2a856b0dccd6dbed31d6d994928ada33a72ca034220ab875",
    "0003_join_token_uses.py": "b80adb9d8bedc17ff54d87fbaa84baf8690ee2c45b78073f95671d897f85a252",
    "0004_people.py": "af32abee01a2dab6938b78bd9b5d228292918b327bad8acd0f211d909ab06ce6",
    "0005_attempt_secrets.py": "db54053055cb35b5c9fd8e1c6225290bb13f022cb1de3f158dd67493803e7fad",
    "0006_audit_append_only.py": "2f6f58733e62d51355e67885d9e0e137eb3481ff3d27e9a90b9fad5b8346a753",
    "0007_login_requests.py": "2c8c4bcd9b488594b97d194d30d8308bc0d6c2e8b305c4b63af256f34e1ded5d",
    "0008_password_links.py": "3eb3e48008fd9d70dbc3efa38c106e26e8ad4c7c1ca0a8c08661b90c10a973ca",
    "0009_listed_projects.py": "8b0116d5f2ea6a2a922cb3429de386181046a3ee145fae486701af391850e201",
    "0010_deliveries.py": "acc360e3a1c0f820c6b0fab10afed66db21a17c721e645b112edd7efc30ca7f7",
    "0011_snapshot_senders.py": "9954762099dba2d4e37894b54de3fb5fb78150205254f529979e82474459bff0",
    "0012_notices.py": "9c54f294f0c1f4c7e1fae4c166530ca773feab7251e075c486b99329516ef437",
    "0013_bounds_of_tokens.py": "cf327ea5ce432ca41bb63fc7e9623ef81c7f02ef98fc164b2e51a16dbf47812f",
    "0014_lives.py": "c75d7ca95dd0f900da27a1db38263c50da144ce65a914a40c7367dc265e87e78",
    "0015_browsers.py": "d475e73838bb958381156782ac47b8056ea3adfe7bc358e68d6fc2188b888d41",
}


def test_committed_migrations_are_never_edited() -> None:
    """Stores that ran one do not run it again: a change needs a file of its own, whose hash is added here."""
    files = (engine.MIGRATIONS / "versions").glob("0*.py")
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == HASHES


def test_later_version_migrates_a_store_with_its_rows(
    store: Store, store_url: str, request: pytest.FixtureRequest
) -> None:
    node_id = register_node(store, facts(), None, 1.0).node_id
    store.close()
    request.getfixturevalue("later_version")
    again = Store.open(store_url)
    with again.read() as session:
        assert session.execute(text("select id, colour from nodes")).all() == [(node_id, "blue")]
    again.close()


def test_copy_of_the_store_is_made_before_a_migration(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    first = Store.open(tmp_path / "rankzero.db", tmp_path / "backups")
    register_node(first, facts(), None, 1.0)
    first.close()
    assert not (tmp_path / "backups").exists()
    older, newer = engine.newest_schema(), next_schema()
    request.getfixturevalue("later_version")
    Store.open(tmp_path / "rankzero.db", tmp_path / "backups").close()
    (copy,) = (tmp_path / "backups").glob(f"before-{newer}-*.db")
    connection = sqlite3.connect(copy)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert connection.execute("select hostname from nodes").fetchall() == [(facts().hostname,)]
    assert connection.execute("select version_num from alembic_version").fetchone() == (older,)
    connection.close()


def test_runs_of_a_store_from_before_people_are_the_owners(tmp_path: Path) -> None:
    file = tmp_path / "rankzero.db"
    earlier = create_engine(f"sqlite:///{file}")
    with earlier.begin() as connection:
        command.upgrade(engine._config(connection=connection), "0003")
        columns = "id, name, project, spec, created_at"
        connection.execute(text(f"insert into runs ({columns}) values ('abcdefghij', 'old', 'default', '{{}}', 1.0)"))
    earlier.dispose()
    store = Store.open(file, tmp_path / "backups")
    with store.read() as session:
        assert [(run.by, run.deleted_at) for run in session.scalars(select(Run))] == [("owner", None)]
        assert [(user.name, user.role) for user in session.scalars(select(User))] == [("owner", "owner")]
    store.close()


def test_store_that_a_later_version_migrated_is_refused_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(tmp_path / "rankzero.db").close()
    with sqlite3.connect(tmp_path / "rankzero.db") as connection:
        connection.execute("alter table nodes add column colour text")
        connection.execute("update alembic_version set version_num = ?", (next_schema(),))
    connection.close()
    before = schema_of(tmp_path / "rankzero.db")
    with pytest.raises(StoreUnusable, match=rf"newer Rankzero \(schema {next_schema()}\)"):
        Store.open(tmp_path / "rankzero.db", tmp_path / "backups")
    assert schema_of(tmp_path / "rankzero.db") == before


@pytest.mark.parametrize(
    ("change", "lacking"),
    [
        ("alter table tasks drop column stacks", "the column tasks.stacks"),
        ("drop index ix_checks_ended_at", "the index ix_checks_ended_at"),
        ("drop table pair_passes", "the table pair_passes"),
    ],
)
def test_store_that_something_else_changed_is_refused_by_what_it_lacks(
    store: Store, store_url: str, change: str, lacking: str
) -> None:
    with store.write() as session:
        session.execute(text(change))
    store.close()
    with pytest.raises(StoreUnusable, match=f"lacks {lacking}, which schema {engine.newest_schema()} has"):
        Store.open(store_url)


REMOVED = {
    "sqlite": ("drop trigger audit_delete",),
    "postgresql": ("drop trigger audit_delete on audit",),
}
SILENCED = {
    "sqlite": (
        "drop trigger audit_delete",
        "create trigger audit_delete before delete on audit begin select 1; end",
    ),
    "postgresql": ("alter table audit disable trigger audit_delete",),
}


@pytest.mark.parametrize("changes", [REMOVED, SILENCED])
def test_store_whose_audit_log_could_be_changed_is_refused(
    store: Store, store_url: str, changes: dict[str, tuple[str, ...]]
) -> None:
    with store.write() as session:
        for change in changes[session.get_bind().dialect.name]:
            session.execute(text(change))
    store.close()
    with pytest.raises(StoreUnusable, match="lacks the trigger audit_delete, by which the audit log is only added to"):
        Store.open(store_url)


def schema_of(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    rows = connection.execute("select sql from sqlite_master order by name").fetchall()
    connection.close()
    return [row[0] for row in rows]
