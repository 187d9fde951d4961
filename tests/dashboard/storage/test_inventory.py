"""Files and rows that do not belong together are named, and brought together again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dashboard.storage import inventory
from dashboard.storage.inventory import ORPHANED_AFTER_S, Inventory
from tests.dashboard.backups.backed_up import BackedUp, backed_up
from tests.dashboard.running import Running


@pytest.fixture
def server(dashboard: Running, tmp_path: Path) -> BackedUp:
    return backed_up(dashboard, tmp_path / "backups")


def taken(server: BackedUp, after_s: float = 2 * ORPHANED_AFTER_S) -> Inventory:
    newest = max(path.stat().st_mtime for path in server.files.rglob("*"))
    return inventory.take_inventory(server.dashboard.service.store, server.files, newest + after_s)


def test_what_belongs_together_is_not_named(server: BackedUp) -> None:
    assert taken(server) == Inventory()


def test_files_without_a_row_are_named_after_a_day(server: BackedUp) -> None:
    names = (
        "999",
        "999.times",
        "999.gz",
        "999.gz.part",
        "checkpoints/999",
        "incoming/999.part",
        "incoming/adopted-999",
        f"snapshots/{'a' * 64}",
    )
    for name in names:
        (server.files / name).write_bytes(b"lost")
    (server.files / "README").write_text("a person's")
    (server.files / "998").symlink_to(server.files / "README")
    assert taken(server, 60.0) == Inventory()
    found = taken(server)
    assert {str(path.relative_to(server.files)) for path in found.orphans} == set(names)
    assert found.orphaned_bytes == 4 * len(names)
    inventory.collect(server.dashboard.service.store, found, server.now)
    assert taken(server) == Inventory() and (server.files / "README").exists()


def test_rows_without_a_file_are_named_and_taken_back(server: BackedUp) -> None:
    (checkpoint,) = (server.files / "checkpoints").iterdir()
    (log,) = (path for path in server.files.iterdir() if path.is_file() and path.read_bytes() == b"first line\n")
    checkpoint.unlink()
    os.truncate(log, 5)
    found = taken(server)
    assert (found.checkpoints, found.shorter, found.missing) == ([int(checkpoint.name)], {int(log.name): 5}, 2)
    inventory.collect(server.dashboard.service.store, found, server.now)
    assert taken(server) == Inventory()
    (run,) = server.dashboard.http.get("/api/runs").json()
    (listed,) = server.dashboard.http.get(f"/api/runs/{run['id']}/checkpoints").json()
    assert not listed["complete"] and "missing on the server" in listed["trouble"]
    offset = server.node.client.file_offsets(server.task, "logs/rank0.out", 0).offset
    assert offset == 5
    server.append(b" line\n", 5)
    server.checkpoint(b"weights of step 1", 1)
    (listed,) = server.dashboard.http.get(f"/api/runs/{run['id']}/checkpoints").json()
    assert listed["complete"] and listed["trouble"] is None
    assert log.read_bytes() == b"first line\n"
