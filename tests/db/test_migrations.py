"""A store of an earlier version opens with all tables and rows, and committed migrations stay as they are."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Connection, MetaData, create_engine, select, text

from db import engine
from db.engine import Store, StoreUnusable
from db.models import Run, Study, StudyTrial, User
from db.nodes.node_reports import register_node
from db.studies import studies
from domain.scaling.plan import ScalingPlan
from domain.sweeps import SweepPlan
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
    "0016_studies.py": "ec44241f8ee8bfbfc8099c715685f3f32a7f06188b68446ff5519fbb7e5e00c5",
    "0017_checkpoints_of_use.py": "e414d49ef12a32da13d54f89e4150b14f97c30e36e202d52fbdbe45034a9943f",
    "0018_watched_runs.py": "b278042cc59bc959036b26f1d408bc29726061f103049d15f777edccf3785cf4",
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


SWEPT = {
    "id": "sssssssssa", "spec": {"target": "image_classifier", "lr": 0.1}, "by": "ana", "only_project": "vision",
    "plan": {"parameters": {"lr": {"values": [0.1, 0.2]}}, "metric": "loss"}, "created_at": 1.0,
    "stop_requested_at": 2.0, "ended_at": 3.0, "message": "enough",
}  # fmt: skip
POINT = {"nodes": 1, "strategy": "ddp", "kind": "cpu", "changes": {"nodes": 1}}
SCALED = {
    "id": "sssssssssb", "spec": {"target": "train.py"}, "by": None, "only_project": None, "created_at": 4.0,
    "stop_requested_at": None, "ended_at": None, "mode": "strong", "steps": 50,
    "points": [
        POINT | {"devices": 1, "global_batch_size": 64, "lr": None, "steps": 70},
        POINT | {"devices": 2, "problem": "gpus: no node has 2."},
    ],
}  # fmt: skip
TRIALS = [
    {"run_id": "rrrrrrrrr1", "number": 0, "params": {"lr": 0.1}, "rung": 1, "rung_values": [0.5], "pruned_at": 9,
     "state": "pruned", "value": 0.5, "device_hours": 0.1, "message": "pruned at rung 1"},
    {"run_id": None, "number": 1, "params": {"lr": 0.2}, "rung": 0, "rung_values": None, "pruned_at": None,
     "state": "failed", "value": None, "device_hours": None, "message": "It could not be launched."},
]  # fmt: skip


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url_of_nothing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for a store that has no table yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'earlier.db'}"
        return
    with request.getfixturevalue("postgres").database("template0") as url:
        yield url


def test_sweeps_and_scaling_studies_of_an_earlier_store_become_studies(url_of_nothing: str) -> None:
    earlier = create_engine(url_of_nothing)
    with earlier.begin() as connection:
        command.upgrade(engine._config(connection=connection), "0015")
        tables = MetaData()
        tables.reflect(connection)
        for number, run_id in enumerate(("rrrrrrrrr1", "rrrrrrrrr3", "rrrrrrrrr2")):
            run = {"name": run_id, "project": "default", "spec": {}, "created_at": float(number)}
            add(connection, tables, "runs", {"id": run_id} | run)
        add(connection, tables, "sweeps", SWEPT)
        add(connection, tables, "scaling_studies", SCALED)
        for trial in TRIALS:
            add(connection, tables, "sweep_trials", {"sweep_id": SWEPT["id"]} | trial)
        for run_id in ("rrrrrrrrr2", "rrrrrrrrr3"):
            add(connection, tables, "scaling_runs", {"run_id": run_id, "study_id": SCALED["id"], "point": 0})
    earlier.dispose()
    store = Store.open(url_of_nothing)
    with store.read() as session:
        swept, scaled = session.scalars(select(Study).order_by(Study.id)).all()
        assert (swept.kind, scaled.kind) == ("sweep", "scaling")
        assert {name: getattr(swept, name) for name in SWEPT} == SWEPT
        shared = SCALED.keys() - {"mode", "steps", "points"}
        assert {name: getattr(scaled, name) for name in shared} == {name: SCALED[name] for name in shared}
        trials = session.scalars(select(StudyTrial).order_by(StudyTrial.study_id, StudyTrial.number)).all()
        assert [{name: getattr(trial, name) for name in TRIALS[0]} for trial in trials[:2]] == TRIALS
        assert [(trial.run_id, trial.params, trial.state, trial.message) for trial in trials[2:]] == [
            ("rrrrrrrrr3", {"point": 0}, None, None),
            ("rrrrrrrrr2", {"point": 0}, None, None),
            (None, {"point": 1}, "failed", "gpus: no node has 2."),
        ]
    assert studies.study(store, str(SWEPT["id"]), SweepPlan).plan.metric == "loss"
    plan = studies.study(store, str(SCALED["id"]), ScalingPlan).plan
    assert [(plan.mode, plan.steps_of(point), point.devices) for point in plan.points] == [
        ("strong", 70, 1), ("strong", 50, 2)
    ]  # fmt: skip
    store.close()


def add(connection: Connection, tables: MetaData, table: str, row: dict[str, Any]) -> None:
    """Insert a row into a table as it was then."""
    connection.execute(tables.tables[table].insert().values(row))


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
    with pytest.raises(StoreUnusable, match="lacks the trigger audit_delete, which keeps the audit log append-only"):
        Store.open(store_url)


def schema_of(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    rows = connection.execute("select sql from sqlite_master order by name").fetchall()
    connection.close()
    return [row[0] for row in rows]
