"""`rankzero migrate-store`: all of an SQLite store in PostgreSQL, or nothing of it."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from cli.commands.installation.system import examine
from cli.main import run
from dashboard.private_files import lock_data_directory
from db import copy_store
from db.checkpoints import checkpoint_queries
from db.engine import Store
from db.metrics import curves
from db.models import Base
from db.nodes import node_queries, node_reports
from db.runs import deletion, run_queries, run_requests
from domain.spec import RunSpec
from tests.dashboard.seeded_store import seed
from tests.db.cluster import Cluster, facts
from tests.postgresql import Cluster as Server


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory in which something has happened, with what SQLite alone would take."""
    folder = tmp_path_factory.mktemp("seeded")
    store = Store.open(folder / "rankzero.db")
    cluster = Cluster(store, node_reports.register_node(store, facts("odd"), None, 100.0).node_id)
    cluster.launch(name="größe")
    (assignment,) = cluster.assignments()
    cluster.points(assignment.fence, 0, 2**40, {"l": [(2**62, math.nan, 1.0)] * 3000})
    cluster.report(assignment.fence, "failed", message="nul \0 and größe")
    seed(store, time.time())
    last = run_requests.submit(store, RunSpec(target="image_classifier", gpus_per_node=1), 1.0)
    run_requests.request_stop(store, last, 2.0)
    deletion.erase(store, last, 9.0)
    store.close()
    return folder


@pytest.fixture
def data(seeded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(seeded, tmp_path / "data")


@pytest.fixture
def target(postgres: Server) -> Iterator[str]:
    with postgres.database("template0") as url:
        yield url


def pictures(where: str) -> dict[str, object]:
    """What people see of a store."""
    store = Store.open(where)
    try:
        run_views = run_queries.runs(store, 1e9)
        assert run_views
        return {
            "runs": run_views,
            "nodes": node_queries.nodes(store, 1e9),
            "series": {r.id: repr(curves.series(store, r.id, source="all")) for r in run_views},
            "history": {r.id: run_queries.history(store, r.id) for r in run_views},
            "checkpoints": {r.id: checkpoint_queries.checkpoints(store, r.id) for r in run_views},
        }
    finally:
        store.close()


def test_everything_is_there_and_ids_go_on(data: Path, target: str, capsys):
    before = (data / "rankzero.db").read_bytes()
    assert run(["migrate-store", "--data", str(data), "--to", target]) == 0
    said = capsys.readouterr().out
    assert "tables copied and compared" in said and "RANKZERO_DATABASE_URL" in said
    assert (data / "rankzero.db").read_bytes() == before
    old, new = pictures(str(data / "rankzero.db")), pictures(target)
    for name in old:
        assert str(new[name]) == str(old[name]).replace("\\x00", "\ufffd"), name
    store = Store.open(target)
    with sqlite3.connect(data / "rankzero.db") as source:
        (highest,) = source.execute("select seq from sqlite_sequence where name = 'attempts'").fetchone()
    run_requests.submit(store, RunSpec(target="image_classifier", gpus_per_node=1), 1.0)
    with store.read() as session:
        assert session.execute(text("select max(fence) from attempts")).scalar() == highest + 1
    store.close()


def test_json_says_how_many_rows_each_table_has(data: Path, target: str, capsys, monkeypatch):
    monkeypatch.setenv("RANKZERO_DATABASE_URL", target)
    assert run(["migrate-store", "--from", f"sqlite:///{data}/rankzero.db", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert set(rows) == set(Base.metadata.tables) and rows["chunks"] > 12 and rows["runs"] > 1


def test_a_store_that_is_in_use_is_left_alone(data: Path, target: str, capsys):
    with lock_data_directory(data):
        assert run(["migrate-store", "--data", str(data), "--to", target]) == 1
    assert "Another dashboard already uses" in capsys.readouterr().err


def test_a_target_that_holds_anything_is_refused(data: Path, target: str, capsys):
    store = Store.open(target)
    node_reports.register_node(store, facts("here"), None, 1.0)
    assert run(["migrate-store", "--data", str(data), "--to", target]) == 1
    assert "is not empty: its table nodes has rows" in capsys.readouterr().err
    assert [node.name for node in node_queries.nodes(store, 1.0)] == ["here"]
    store.close()


def test_row_that_arrives_differently_undoes_the_copy(data: Path, target: str, capsys, monkeypatch):
    real = copy_store._rows

    def with_a_slip(table, connection):
        for rows in real(table, connection):
            slips = table.name == "history" and connection.dialect.name == "postgresql"
            yield [{**row, "text": "other"} for row in rows] if slips else rows

    monkeypatch.setattr(copy_store, "_rows", with_a_slip)
    assert run(["migrate-store", "--data", str(data), "--to", target]) == 1
    assert "history is not the same after copying" in capsys.readouterr().err
    store = Store.open(target)
    assert run_queries.runs(store, 1.0) == []
    store.close()


def test_a_row_that_postgresql_does_not_take_ends_it_in_words(data: Path, target: str, capsys):
    with sqlite3.connect(data / "rankzero.db") as source:
        source.execute("update tasks set pid = 99999999999")
    assert run(["migrate-store", "--data", str(data), "--to", target]) == 1
    assert "failed, and nothing was kept: integer out of range" in capsys.readouterr().err


def test_an_older_store_is_to_be_opened_first(data: Path, target: str, capsys):
    with sqlite3.connect(data / "rankzero.db") as source:
        source.execute("update alembic_version set version_num = '0000'")
    assert run(["migrate-store", "--data", str(data), "--to", target]) == 1
    assert "is of another version (schema 0000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--to", "postgresql://u@h/d"], 1, "There is no SQLite store"),
        (["--from", "postgresql://u@h/d", "--to", "postgresql://u@h/d"], 1, "--from must be an SQLite store"),
        ([], 2, "--to is needed"),
        (["--to", "nonsense"], 2, "--to is not a URL"),
        (["--to", "postgresql://u:geheim@h/d"], 2, "others on this machine could read it"),
        (["--to", "postgresql://u@h/d?password=geheim"], 2, "others on this machine could read it"),
    ],
)
def test_wrong_store_is_refused_in_a_sentence(arguments, code, sentence, tmp_path: Path, capsys):
    assert run(["migrate-store", "--data", str(tmp_path), *arguments]) == code
    said = capsys.readouterr().err
    assert sentence in said and "geheim" not in said


def test_only_postgresql_is_a_target_and_only_a_store_a_source(data: Path, tmp_path: Path, target: str, capsys):
    assert run(["migrate-store", "--data", str(data), "--to", f"sqlite:///{tmp_path}/b.db"]) == 1
    assert "--to must be PostgreSQL" in capsys.readouterr().err
    (tmp_path / "letter").write_text("to my mother")
    assert run(["migrate-store", "--from", str(tmp_path / "letter"), "--to", target]) == 1
    assert "cannot be read as a Rankzero store" in capsys.readouterr().err


def test_doctor_says_where_the_store_is_and_that_files_are_shared(target: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RANKZERO_DATABASE_URL", target)
    store_check = {check.name: check for check in examine(tmp_path)}["store"]
    assert store_check.ok and "PostgreSQL 1" in store_check.message and f"{tmp_path}/files" in store_check.message
    monkeypatch.setenv("RANKZERO_DATABASE_URL", "postgresql://u:geheim@127.0.0.1:1/d")
    store_check = {check.name: check for check in examine(tmp_path)}["store"]
    assert not store_check.ok and "cannot be reached" in store_check.message and "geheim" not in store_check.message
