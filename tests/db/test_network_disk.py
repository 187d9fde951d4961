"""A store on a network file system: survived, for one program alone, and said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from db import sqlite
from db.engine import Store


def test_on_a_network_file_system_a_store_is_for_one_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "a share"
    folder.mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/x {str(folder).replace(' ', chr(92) + '040')} nfs4 rw 0 0\n")
    monkeypatch.setattr(sqlite, "MOUNTS", mounts)
    assert sqlite.network_of(tmp_path / "rankzero.db") == ""
    store = Store.open(folder / "rankzero.db")
    try:
        assert "nfs4" in caplog.text and "local disk" in caplog.text
        with store.write() as session:
            session.execute(text("select 1"))
        with store.read() as session:
            assert session.execute(text("select count(*) from runs")).scalar() == 0
        assert not (folder / "rankzero.db-shm").exists()
        question = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('select * from runs')"
        other = subprocess.run(
            [sys.executable, "-c", question, str(folder / "rankzero.db")], capture_output=True, text=True
        )
        assert "locked" in other.stderr
    finally:
        store.close()
