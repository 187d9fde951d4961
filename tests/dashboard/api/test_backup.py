"""Backups over HTTP: whole, in the folder of backups alone, and nothing that a request says moves them elsewhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from db.people import audit
from tests.dashboard.running import FakeNode, Running

ELSEWHERE = [
    {"path": "wheels/store-1-py3-none-any.whl"}, {"path": "copy.db"}, {"path": "backups/copy.db"},
    *({"name": name} for name in (
        "wheels/x.db", "../wheels/store.db", "/tmp/x.db", "backups/x.db", "..", ".", "", ".hidden.db", "a/b.db",
        "x.whl", "x.db-wal", "x.db-journal", "x\0.db", "x.db\n", "x.db/", "%2e%2e%2fx.db", "a\\b.db", "ä.db", "-x.db",
        1,
    )),
]  # fmt: skip


def files_of(dashboard: Running) -> set[Path]:
    return {path for path in dashboard.service.settings.data.rglob("*") if not path.name.startswith("rankzero.db")}


def test_a_backup_is_whole_private_and_never_overwrites(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    backups = dashboard.service.settings.data / "backups"
    for body in ({"name": "copy.db"}, {}, None):
        written = dashboard.http.post("/api/backup", json=body).json()
        target = Path(written["path"])
        assert target.parent == backups and target.stat().st_mode & 0o777 == 0o600
        assert written["size_bytes"] == target.stat().st_size
        with closing(sqlite3.connect(target)) as copy:
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert copy.execute("SELECT id FROM runs").fetchall() == [(run_id,)]
    content = (backups / "copy.db").read_bytes()
    assert dashboard.http.post("/api/backup", json={"name": "copy.db"}).status_code == 409
    assert (backups / "copy.db").read_bytes() == content


@pytest.mark.parametrize("body", ELSEWHERE, ids=repr)
def test_a_request_names_no_other_place(shared: Running, body: dict[str, Any]) -> None:
    before = files_of(shared)
    assert shared.http.post("/api/backup", json=body).status_code == 422
    assert files_of(shared) == before


def test_links_lead_a_backup_nowhere(dashboard: Running, tmp_path: Path) -> None:
    data = dashboard.service.settings.data
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (data / "backups").mkdir(exist_ok=True)
    (data / "backups" / "file.db").symlink_to(elsewhere / "file.db")
    assert dashboard.http.post("/api/backup", json={"name": "file.db"}).status_code == 409
    (data / "backups").rename(data / "before")
    for target in (elsewhere, data / "wheels"):
        (data / "backups").symlink_to(target)
        before = files_of(dashboard)
        answer = dashboard.http.post("/api/backup", json={"name": "copy.db"})
        assert answer.status_code == 409 and "is a link" in answer.json()["detail"]["message"]
        assert files_of(dashboard) == before
        (data / "backups").unlink()
    assert not list(elsewhere.iterdir())


def test_a_backup_that_cannot_be_written_down_is_not_kept(dashboard: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("the log cannot be written")

    monkeypatch.setattr(audit, "record", refuse)
    assert dashboard.http.post("/api/backup", json={"name": "copy.db"}).status_code == 500
    assert not (dashboard.service.settings.data / "backups" / "copy.db").exists()
