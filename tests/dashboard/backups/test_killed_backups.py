"""Backups and restorations that are killed at any moment: what is listed is whole, and what was whole stays."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.backups import copying, manifest, taking
from dashboard.settings import Settings
from db.sqlite import SqliteDatabase
from tests.dashboard.backups.backed_up import backed_up, restore
from tests.dashboard.running import running

pytestmark = pytest.mark.real
KILLS = [20, pytest.param(200, marks=pytest.mark.long)]
CHECKPOINTS, CHECKPOINT_BYTES = 12, 400_000
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that is stopped, with files enough for many moments."""
    folder = tmp_path_factory.mktemp("server")
    with running(folder / "data") as dashboard:
        server = backed_up(dashboard, folder / "backups")
        for step in range(CHECKPOINTS):
            server.checkpoint(os.urandom(CHECKPOINT_BYTES), 10 + step)
    return folder / "data"


def take(data: Path, folder: Path, at: float, keep: int | None = None) -> None:
    database = SqliteDatabase(f"sqlite:///{data / 'rankzero.db'}", may_be_new=False)
    taking.take_backup(Settings(data=data), folder, database.backup, at)
    database.close()
    if keep is not None:
        taking.keep_newest(folder, keep)


def killed(act: Callable[[], object], after_s: float) -> bool:
    """Do it in a process that is killed after so long; return whether it was sooner."""
    child = os.fork()
    if not child:
        try:
            act()
        finally:
            os._exit(0)
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def duration_of(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def assert_whole(backup: Path) -> None:
    written = manifest.read_manifest(backup)
    assert len([name for name in written.files if "checkpoints/" in name]) == CHECKPOINTS + 1 and not written.missing
    for name, entry in written.files.items():
        copying.verified(backup / name, entry)


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("is_incremental", [False, True])
def test_backups_that_are_killed_list_only_what_is_whole(
    data: Path, tmp_path: Path, kills: int, is_incremental: bool
) -> None:
    folder = tmp_path / "backups"
    longest_s = duration_of(lambda: take(data, tmp_path / "measured", NOW))
    if is_incremental:
        take(data, folder, NOW)
    whole: list[Path] = []
    for number in range(1, kills + 1):
        killed(lambda number=number: take(data, folder, NOW + number, keep=2), random.uniform(0, longest_s))
        listed = manifest.whole_backups(folder) if folder.exists() else []
        assert set(whole[-1:]) <= set(listed), "the newest whole backup is gone"
        for backup in set(listed) - set(whole):
            assert_whole(backup)
        whole = listed
        if not is_incremental:
            shutil.rmtree(folder, ignore_errors=True)
            whole = []
    take(data, folder, NOW + kills + 1, keep=2)
    for backup in manifest.whole_backups(folder):
        assert_whole(backup)
    assert {path.name for path in folder.iterdir()} == {".lock", *(one.name for one in manifest.whole_backups(folder))}


@pytest.mark.parametrize("kills", KILLS)
def test_restorations_that_are_killed_leave_nothing_or_all_of_it(data: Path, tmp_path: Path, kills: int) -> None:
    take(data, tmp_path / "backups", NOW)
    (backup,) = manifest.whole_backups(tmp_path / "backups")
    longest_s = duration_of(lambda: restore(backup, tmp_path / "measured"))
    machine = tmp_path / "machine"
    for _ in range(kills):
        killed(lambda: restore(backup, machine / "data"), random.uniform(0, longest_s))
        if (machine / "data").exists():
            assert_restored(machine / "data", backup)
            shutil.rmtree(machine / "data")
    restore(backup, machine / "data")
    assert_restored(machine / "data", backup)
    assert [path.name for path in machine.iterdir()] == ["data"]
    assert_whole(backup)


def assert_restored(place: Path, backup: Path) -> None:
    """The restored store is usable, and each other file is that of the backup."""
    for name, entry in manifest.read_manifest(backup).files.items():
        if name != manifest.STORE:
            copying.verified(place / name, entry)
    with running(place) as after:
        (run,) = after.http.get("/api/runs").json()
        listed = after.http.get(f"/api/runs/{run['id']}/checkpoints").json()
        assert [one["complete"] for one in listed] == [True] * (CHECKPOINTS + 1)
