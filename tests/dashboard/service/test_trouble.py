"""A full disk, a read-only or locked store: said everywhere, nothing lost, and over by itself."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from cli.server.client import ServerClient
from dashboard.app.server import WARNING
from db import sqlite
from db.engine import Store, StoreUnusable
from db.nodes import join_tokens
from db.trouble import Trouble
from db.trouble import trouble_of as trouble_of_error
from domain.clients.addresses import Address
from domain.messages import NodeLoad, PointBatch
from domain.points import body_of
from tests.dashboard.read_only import make_read_only
from tests.dashboard.running import FakeNode, Running, bundle_of, running, wait_for
from tests.postgresql import Cluster as Server

SMALL_BYTES = 8 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with little room; needs root, as the tests on several hosts do."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "none", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room there is; returns the file to delete."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (64 * 1024, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler


def points_of(node: FakeNode) -> dict[str, object]:
    """What a worker would send."""
    batch = PointBatch(path="e", generation=0, start=0, end=1, series={"a": [(1, 2.0, 3.0)]})
    return {"url": "/api/worker/pieces", "content": bundle_of(node.task(), body_of(batch))}


def trouble_of(dashboard: Running) -> str | None:
    """What any answer of the API carries beside itself."""
    return dashboard.http.get("/api/runs").headers.get(WARNING)


def states_of(dashboard: Running) -> dict[str, str]:
    """The contact with each node."""
    return {one["name"]: one["state"] for one in dashboard.http.get("/api/nodes").json()}


def test_a_full_disk_is_said_and_reading_goes_on(small_disk: Path) -> None:
    with running(small_disk / "data", lost_after_s=3600) as dashboard:
        node = dashboard.node("n0")
        with dashboard.real_silence():
            silent = dashboard.node("n1")
        run_id = dashboard.launch()
        worker = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
        points = points_of(node)
        node.report(node.task(), "running")
        assert trouble_of(dashboard) is None
        filler = fill(small_disk)
        wait_for(lambda: trouble_of(dashboard) == Trouble.FULL, "the warning")
        wait_for(lambda: worker.post(**points).status_code == 507, "the store to be full")
        assert worker.post(**points).json()["detail"]["message"] == Trouble.FULL
        assert dashboard.http.post("/api/runs", json={"target": "image_classifier"}).status_code == 507

        dashboard.pass_by(20)  # whoever says nothing now has been silent for so long
        node.client.load(NodeLoad())
        wait_for(lambda: states_of(dashboard) == {"n0": "alive", "n1": "no contact"}, "the silence to count")
        assert dashboard.run(run_id)["lost_contact"] is False

        filler.unlink()
        wait_for(lambda: trouble_of(dashboard) is None, "the warning to go")
        assert worker.post(**points).json() == {"answers": [{"status": 200, "body": {"offset": 1}}]}
        assert silent is not node


def test_a_dashboard_starts_on_a_full_disk_and_serves_what_is_stored(small_disk: Path) -> None:
    data = small_disk / "data"
    with running(data) as dashboard:
        dashboard.node()
        run_id = dashboard.launch()
        wait_for((data / ".spare").exists, "the spare file")
        shutil.copytree(data, small_disk / "killed")  # as kill -9 leaves it, with a write-ahead log
    shutil.rmtree(data)
    for leftover in ("rankzero.db-shm", "server.json"):
        (small_disk / "killed" / leftover).unlink(missing_ok=True)
    assert (small_disk / "killed/rankzero.db-wal").stat().st_size > 0
    filler = fill(small_disk)
    with running(small_disk / "killed") as dashboard:
        assert [run["id"] for run in dashboard.http.get("/api/runs").json()] == [run_id]
        assert trouble_of(dashboard) == Trouble.FULL
        assert json.loads((small_disk / "killed/server.json").read_text())["url"] == dashboard.url
        assert dashboard.http.post(f"/api/runs/{run_id}/stop").status_code == 507
        copy = small_disk / "killed/backups/copy.db"
        assert dashboard.http.post("/api/backup", json={"name": copy.name}).status_code == 507
        assert not copy.exists()
        filler.unlink()
        wait_for(lambda: trouble_of(dashboard) is None, "the warning to go")
        later = dashboard.launch()
        assert dashboard.http.post("/api/backup", json={"name": copy.name}).status_code == 200
    with running(small_disk / "killed") as dashboard:
        assert {run["id"] for run in dashboard.http.get("/api/runs").json()} == {run_id, later}


def test_a_store_that_must_be_upgraded_says_that_the_disk_is_full(
    small_disk: Path, request: pytest.FixtureRequest
) -> None:
    Store.open(small_disk / "rankzero.db").close()
    request.getfixturevalue("later_version")
    fill(small_disk)
    with pytest.raises(StoreUnusable, match="disk is full"):
        Store.open(small_disk / "rankzero.db", small_disk / "backups")
    assert not list((small_disk / "backups").glob("*.db"))


def test_a_locked_store_is_said_in_time_and_is_free_again_by_itself(tmp_path: Path, monkeypatch) -> None:
    assert max(sqlite.TURN_LIMIT_S, sqlite.POOL_LIMIT_S + sqlite.BUSY_TIMEOUT_S) < 30
    with running(tmp_path / "data") as dashboard:
        node = dashboard.node()
        dashboard.launch()
        points = points_of(node)
        worker = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
        foreign = sqlite3.connect(tmp_path / "data/rankzero.db", isolation_level=None, timeout=60)
        with closing(foreign), monkeypatch.context() as hurried:
            foreign.execute("begin exclusive")
            hurried.setattr(sqlite, "TURN_LIMIT_S", 0.5)
            hurried.setattr(sqlite, "LOCKED_LIMIT_S", 0.1)
            answer = worker.post(**points)
            assert (answer.status_code, answer.json()["detail"]["message"]) == (503, Trouble.LOCKED)
            assert trouble_of(dashboard) == Trouble.LOCKED
            assert dashboard.http.get("/api/runs").status_code == 200
            assert dashboard.http.get("/api/nodes").json()[0]["state"] == "alive"
        wait_for(lambda: trouble_of(dashboard) is None, "the warning to go")
        assert worker.post(**points).json() == {"answers": [{"status": 200, "body": {"offset": 1}}]}


def test_a_read_only_store_is_said_and_is_written_again_by_itself(tmp_path: Path) -> None:
    with running(tmp_path / "data") as dashboard:
        node = dashboard.node()
        dashboard.launch()
        points = points_of(node)
        worker = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
        make_read_only(dashboard.service.store, True)
        answer = worker.post(**points)
        assert (answer.status_code, answer.json()["detail"]["message"]) == (503, Trouble.READ_ONLY)
        assert trouble_of(dashboard) == Trouble.READ_ONLY
        assert dashboard.http.get("/api/runs").status_code == 200
        make_read_only(dashboard.service.store, False)
        wait_for(lambda: trouble_of(dashboard) is None, "the warning to go")
        assert worker.post(**points).json() == {"answers": [{"status": 200, "body": {"offset": 1}}]}


def test_the_command_line_says_once_what_keeps_the_server_from_storing(tmp_path: Path, capsys) -> None:
    with running(tmp_path / "data") as dashboard:
        make_read_only(dashboard.service.store, True)
        dashboard.service.store.trouble = Trouble.READ_ONLY
        server = ServerClient(Address(dashboard.url, dashboard.token))
        assert server.get("/api/runs") == server.get("/api/nodes") == []
        assert capsys.readouterr().err == f"rankzero: {Trouble.READ_ONLY}\n"


def test_a_write_that_waits_for_others_does_not_wait_for_ever(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite, "TURN_LIMIT_S", 0.2)
    store = Store.open(tmp_path / "rankzero.db")
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with store.write():
            held.set()
            let_go.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(60)
        with pytest.raises(sqlite.StoreBusy):
            join_tokens.make(store, 60.0, "late", 0.0)
    finally:
        let_go.set()
        holder.join()
        store.close()


@pytest.mark.parametrize(
    ("number", "path", "trouble"),
    [
        (errno.EROFS, "/data/files/1", Trouble.READ_ONLY),
        (errno.EACCES, "/data/files/1", Trouble.READ_ONLY),
        (errno.EPERM, "/data/backups", Trouble.READ_ONLY),
        (errno.EACCES, "/home/me/train.py", None),
        (errno.ENOENT, "/data/files/1", None),
    ],
)
def test_files_that_may_not_be_written_beside_the_store_are_its_trouble(
    number: int, path: str, trouble: Trouble | None
) -> None:
    assert trouble_of_error(OSError(number, "", path), Path("/data/rankzero.db")) is trouble


def test_an_outage_of_postgresql_is_one_sentence_and_its_end_another(
    tmp_path: Path, postgres: Server, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running(tmp_path / "data", database_url=postgres_url) as dashboard:
        dashboard.node()
        run_id, before = dashboard.launch(), len(caplog.records)
        postgres.stop()
        try:
            wait_for(lambda: dashboard.service.trouble is Trouble.AWAY, "the outage to be noticed")
            for path in ("/api/runs", f"/api/runs/{run_id}", "/api/nodes", "/metrics") * 3:
                answer = dashboard.http.get(path)
                assert answer.status_code == 503 and answer.json()["detail"]["message"] == Trouble.AWAY, path
            answer = dashboard.http.post("/api/runs", json={"target": "image_classifier"})
            assert answer.status_code == 503 and answer.headers["retry-after"]
            with pytest.raises(OperationalError), dashboard.service.store.read() as session:
                session.execute(text("select 1"))
        finally:
            postgres.start()
        wait_for(lambda: dashboard.service.trouble is None, "the store to be back")
        assert dashboard.run(run_id)["state"] == "starting"
        logged = [record for record in caplog.records[before:] if record.name == "rankzero"]
        assert [record.getMessage() for record in logged] == [Trouble.AWAY, "the store accepts writes again"]
        assert not any(record.exc_info for record in caplog.records[before:])
