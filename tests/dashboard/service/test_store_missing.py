"""The store's file deleted under a dashboard, or missing at its start: said, never an empty store silently."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from dashboard.service import store_opening
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.engine import Store, StoreUnusable
from db.models import Base
from tests.dashboard.pages import Pages, served, texts
from tests.dashboard.running import Running, running


def rescued(dashboard: Running) -> Path:
    """The copy that was made of what the deleted file held."""
    (copy,) = (dashboard.service.settings.data / "backups").glob("rescued-*.db")
    return copy


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_deleted_while_it_is_served_is_said_and_saved(dashboard: Running, replaced: bool) -> None:
    run_id = dashboard.launch(wait_for_nodes=True)
    file = dashboard.service.settings.data / "rankzero.db"
    if replaced:  # in one step: else the dashboard may look between the two
        sqlite3.connect(other := file.with_name("other.db")).close()
        other.replace(file)
    else:
        file.unlink()
    for method, path in (("GET", "/api/runs"), ("POST", f"/api/runs/{run_id}/stop")):
        answer = dashboard.http.request(method, path)
        assert answer.status_code == 503, answer.text
        message = answer.json()["detail"]["message"]
        assert f"The store {file} was {'replaced' if replaced else 'deleted'}" in message
        assert f"saved in {rescued(dashboard)}" in message and f"copy that file to {file}" in message
    assert file.exists() == replaced
    with sqlite3.connect(rescued(dashboard)) as copy:
        assert copy.execute("select id from runs").fetchall() == [(run_id,)]
    copy.close()


def test_saved_file_is_a_usable_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as before:
        run_id = before.launch(wait_for_nodes=True)
        (data / "rankzero.db").rename(tmp_path / "away.db")
        assert before.http.get("/api/runs").status_code == 503
        shutil.copy(rescued(before), data / "rankzero.db")
    for leftover in data.glob("rankzero.db-*"):
        leftover.unlink()
    with running(data) as after:
        assert after.run(run_id)["state"] == "queued"


def test_a_store_that_is_put_back_serves_on(dashboard: Running, tmp_path: Path) -> None:
    file = dashboard.service.settings.data / "rankzero.db"
    file.rename(tmp_path / "away.db")
    assert dashboard.http.get("/api/runs").status_code == 503
    (tmp_path / "away.db").rename(file)
    assert dashboard.http.get("/api/runs").status_code == 200


@pytest.fixture
def pages(tmp_path: Path):
    with served(tmp_path / "data") as opened:
        yield opened


@pytest.mark.parametrize("page", ["runs", "nodes", "launch"])
def test_pages_say_it(pages: Pages, page: str) -> None:
    (pages.service.settings.data / "rankzero.db").unlink()
    shown = pages.open(page)
    assert not shown.exception
    assert "deleted or moved away" in texts(shown) and "saved in" in texts(shown)


def settings(data: Path) -> Settings:
    return Settings(data=data)


def test_a_first_start_makes_the_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    Service.open(settings(data)).close()
    assert (data / "rankzero.db").exists()


def test_without_its_store_a_dashboard_does_not_start_and_names_the_newest_copy(tmp_path: Path) -> None:
    data = tmp_path / "data"
    service = Service.open(settings(data))
    (data / "backups").mkdir()
    service.store.backup(data / "backups" / "before-0005-1.db")
    service.close()
    (data / "rankzero.db").unlink()
    for _ in range(2):
        with pytest.raises(StoreUnusable) as refusal:
            Service.open(settings(data))
        for words in (f"no store at {data}/rankzero.db", f"{data}/backups/before-0005-1.db", "--new-store"):
            assert words in str(refusal.value)
        assert not (data / "rankzero.db").exists()
    (data / "rankzero.db").touch()
    with pytest.raises(StoreUnusable, match="no store at"):
        Service.open(settings(data))


def test_a_new_store_on_purpose_sets_the_files_of_the_old_one_aside(tmp_path: Path) -> None:
    data = tmp_path / "data"
    service = Service.open(settings(data))
    service.files.append(1, 0, b"a log of the old store")
    service.close()
    (data / "rankzero.db").unlink()
    again = Service.open(settings(data), new_store=True)
    assert again.files.read(1, 0, 100) == b""
    again.close()
    (aside,) = data.glob("files-before-*")
    assert (aside / "1").read_bytes() == b"a log of the old store"
    Service.open(settings(data), new_store=True).close()  # there is one now: it stays
    assert len(list(data.glob("files-before-*"))) == 1


def test_an_emptied_database_is_not_taken_for_a_new_one(tmp_path: Path, postgres_url: str) -> None:
    on_postgres = Settings(data=tmp_path / "data", database_url=postgres_url)
    Service.open(on_postgres).close()
    store = Store.open(postgres_url)
    with store.database.writer.begin() as connection:
        Base.metadata.drop_all(connection)
        connection.exec_driver_sql("drop table alembic_version")
    store.close()
    assert store_opening.had_store(on_postgres)
    with pytest.raises(StoreUnusable, match=r"no store at postgresql.*--new-store"):
        Service.open(on_postgres)
    Service.open(on_postgres, new_store=True).close()
