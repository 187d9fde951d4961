"""Logs and event files of ended runs are compressed: all answers stay the same, and no crash loses a byte."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from dashboard.backups import taking
from dashboard.service import compression
from dashboard.service.compression import Compression
from dashboard.settings import DAY_S
from dashboard.storage import inventory
from dashboard.storage.files import Files
from dashboard.storage.inventory import Inventory
from dashboard.tensorboard.process import arrange
from db.models import File
from db.tasks import compressed_files
from tests.dashboard.backups.backed_up import BackedUp, backed_up, restore
from tests.dashboard.running import Running

LOG = b"".join(b"step %d loss %.7f\n" % (step, 1 / (step + 1)) for step in range(12_000)) + b"last needle\n"
EVENTS = bytes(range(256)) * 400
RANDOM = os.urandom(100_000)
NAMES = {"logs/rank0.out": LOG, "work/events.out.tfevents.1": EVENTS, "logs/rank0.err": RANDOM}


@pytest.fixture
def server(dashboard: Running, tmp_path: Path) -> BackedUp:
    """A server with a run that has just ended."""
    it = backed_up(dashboard, tmp_path / "backups")
    for path, content in NAMES.items():
        it.append(content, len(b"first line\n") if path == "logs/rank0.out" else 0, path)
    it.node.report(it.task, "succeeded", exit_code=0)
    return it


def sweeping(server: BackedUp, after_s: float = 2 * DAY_S) -> Compression:
    service = server.dashboard.service
    return Compression(service.store, service.files, lambda: service.clock() + after_s)


def compress(server: BackedUp, after_s: float = 2 * DAY_S) -> None:
    sweeps = sweeping(server, after_s)
    while not sweeps._look_from:
        sweeps.sweep()


def row(server: BackedUp, path: str) -> File:
    with server.dashboard.service.store.read() as session:
        return session.scalars(select(File).where(File.path == path)).one()


def forms(server: BackedUp, path: str) -> set[str]:
    """The ends of the names of a file's forms on disk."""
    key = str(row(server, path).id)
    return {file.name.removeprefix(key) for file in server.files.glob(f"{key}*")} - {".times"}


def content(server: BackedUp, path: str) -> bytes:
    file = row(server, path)
    return server.dashboard.service.files.read(file.id, 0, file.size_bytes)


def answers(server: BackedUp) -> dict[str, Any]:
    """The run's logs as people ask for them: whole, in parts, merged, searched."""
    http = server.dashboard.http
    run_id = http.get("/api/runs").json()[0]["id"]
    of_run = f"/api/runs/{run_id}/logs"
    log = {"rank": "0", "stream": "out"}
    given: dict[str, Any] = {
        "whole": http.get(of_run, params=log),
        "range": http.get(of_run, params=log, headers={"Range": "bytes=70000-140000"}),
        "tail": http.get(of_run, params=log, headers={"Range": "bytes=-100"}),
        "search": http.get(f"{of_run}/search", params=log | {"q": "needle"}),
        "merged": http.get(f"{of_run}/merged"),
        "merged search": http.get(f"{of_run}/merged/search", params={"q": "needle"}),
        "all runs": http.get("/api/logs/search", params={"q": "needle"}),
    }
    headers = ("content-range", "content-length", "etag", "accept-ranges")
    return {
        name: (answer.status_code, answer.content, [answer.headers.get(header) for header in headers])
        for name, answer in given.items()
    }


def archived(server: BackedUp) -> dict[str, bytes]:
    """The logs and event files in the run's archive."""
    run_id = server.dashboard.http.get("/api/runs").json()[0]["id"]
    archive = server.dashboard.http.get("/api/export", params={"runs": run_id, "format": "archive"}).content
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist() if "/files/" in name}


def test_answers_are_the_same(server: BackedUp) -> None:
    before, archived_before = answers(server), archived(server)
    assert LOG in before["whole"][1] and b"needle" in before["search"][1] and b"needle" in before["merged search"][1]
    compress(server)
    assert answers(server) == before and archived(server) == archived_before != {}
    assert forms(server, "logs/rank0.out") == forms(server, "work/events.out.tfevents.1") == {".gz"}
    on_disk = (server.files / f"{row(server, 'logs/rank0.out').id}.gz").stat().st_size
    assert row(server, "logs/rank0.out").compressed_bytes == on_disk < len(LOG) / 2
    assert inventory.take_inventory(server.dashboard.service.store, server.files, 4e9) == Inventory()


def test_what_gains_too_little_stays_and_is_not_tried_again(server: BackedUp) -> None:
    compress(server)
    assert forms(server, "logs/rank0.err") == {""} and row(server, "logs/rank0.err").compressed_bytes == 0
    service = server.dashboard.service
    assert compressed_files.next_ended(service.store, 0, service.clock() + 2 * DAY_S) is None


def test_a_file_larger_than_the_free_space_does_not_hold_up_smaller_ones(
    server: BackedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.dashboard.service.files, "free_bytes", lambda: len(EVENTS))
    compress(server)
    assert forms(server, "logs/rank0.out") == {""} and forms(server, "work/events.out.tfevents.1") == {".gz"}
    monkeypatch.undo()
    compress(server)
    assert forms(server, "logs/rank0.out") == {".gz"}


def test_a_run_that_ended_today_is_left_alone(server: BackedUp) -> None:
    compress(server, after_s=DAY_S / 2)
    assert all(forms(server, path) == {""} for path in NAMES)


def test_a_node_that_comes_back_appends(server: BackedUp) -> None:
    compress(server)
    before = content(server, "logs/rank0.out")
    server.append(b"one more\n", len(before))
    assert content(server, "logs/rank0.out") == before + b"one more\n"
    assert forms(server, "logs/rank0.out") == {""} and row(server, "logs/rank0.out").compressed_bytes is None
    compress(server)
    assert content(server, "logs/rank0.out") == before + b"one more\n" and forms(server, "logs/rank0.out") == {".gz"}


def test_bytes_that_arrive_while_a_file_is_compressed_are_kept(
    server: BackedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "STEP_BYTES", 1)
    sweeps = sweeping(server)
    sweeps.sweep()
    before = content(server, "logs/rank0.out")
    server.append(b"one more\n", len(before))
    for _ in range(20):
        sweeps.sweep()
    assert content(server, "logs/rank0.out") == before + b"one more\n" and forms(server, "logs/rank0.out") == {""}


class Crash(BaseException):
    """The power fails."""


def crash_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From this call on of those that change the disk or the store, none does anything any more."""
    calls = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > call:
                raise Crash
            return function(*args, **options)

        return called

    for name in ("unlink", "rename"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    for module, name in ((os, "open"), (os, "fsync"), (compression, "sync_folder"), (compressed_files, "compressed")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))


def test_a_crash_at_any_point_leaves_a_readable_file(server: BackedUp, monkeypatch: pytest.MonkeyPatch) -> None:
    before, path = content(server, "logs/rank0.out"), "logs/rank0.out"
    crashes = 0
    while True:
        with monkeypatch.context() as patches:
            crash_at(crashes, patches)
            try:
                sweeping(server).sweep()
            except Crash:
                crashes += 1
            else:
                break
        assert content(server, path) == before
        inventory_now = inventory.take_inventory(server.dashboard.service.store, server.files, 4e9)
        assert inventory_now == Inventory()
        if ".gz" in forms(server, path) and "" not in forms(server, path):
            break
    assert crashes > 5
    compress(server)
    assert forms(server, path) == {".gz"} and content(server, path) == before
    assert row(server, path).compressed_bytes == (server.files / f"{row(server, path).id}.gz").stat().st_size


def test_a_backup_has_the_form_of_its_moment(server: BackedUp, tmp_path: Path) -> None:
    before = content(server, "logs/rank0.out")
    key = row(server, "logs/rank0.out").id
    with_plain = server.take()
    compress(server)
    server.now += DAY_S
    with_compressed = server.take()
    assert f"files/{key}" in with_plain.manifest.files and f"files/{key}.gz" in with_compressed.manifest.files
    assert not with_compressed.manifest.missing
    data = tmp_path / "restored"
    restored = restore(with_compressed.path, data)
    assert not restored.inventory.missing
    assert Files(data / "files", 0).read(key, 0, len(before)) == before


def test_a_file_that_is_compressed_during_a_backup_is_in_it(server: BackedUp) -> None:
    key = row(server, "logs/rank0.out").id

    def copy_then_compress(target: Path) -> None:
        server.dashboard.service.store.backup(target)
        compress(server)

    taken = taking.take_backup(server.settings, server.folder, copy_then_compress, server.now)
    assert f"files/{key}.gz" in taken.manifest.files and not taken.manifest.missing


def test_a_lost_compressed_file_is_sent_again_whole(server: BackedUp) -> None:
    compress(server)
    store, key = server.dashboard.service.store, row(server, "logs/rank0.out").id
    (server.files / f"{key}.gz").unlink()
    found = inventory.take_inventory(store, server.files, 4e9)
    assert found.shorter == {key: 0}
    inventory.collect(store, found, server.now)
    assert (row(server, "logs/rank0.out").size_bytes, row(server, "logs/rank0.out").compressed_bytes) == (0, None)


def test_tensorboard_gets_the_content(server: BackedUp, tmp_path: Path) -> None:
    folder = tmp_path / "board" / "events"
    plain = server.files / str(row(server, "work/events.out.tfevents.1").id)
    shown = {"attempt 1/events.out.tfevents.1": plain}
    arrange(folder, shown)
    link = folder / "attempt 1/events.out.tfevents.1"
    assert link.is_symlink() and link.read_bytes() == EVENTS
    compress(server)
    arrange(folder, shown)
    assert not link.is_symlink() and link.read_bytes() == EVENTS
    written = link.stat().st_ino
    arrange(folder, shown)
    assert link.stat().st_ino == written
    server.append(b"more", len(EVENTS), "work/events.out.tfevents.1")
    arrange(folder, shown)
    assert link.is_symlink() and link.read_bytes() == EVENTS + b"more"
    arrange(folder, {})
    assert not link.exists()


def test_an_erased_run_leaves_nothing(server: BackedUp) -> None:
    compress(server)
    run_id = server.dashboard.http.get("/api/runs").json()[0]["id"]
    server.dashboard.service.deletions.delete(run_id, at_once=True)
    assert not [path for path in server.files.iterdir() if path.is_file()]
