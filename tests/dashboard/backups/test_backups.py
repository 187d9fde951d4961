"""Backups of a whole server: complete, private, incremental, verified, and restored where nothing is."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from dashboard.backups import manifest, restoring, taking
from dashboard.backups.manifest import BackupManifest, BackupUnusable
from dashboard.settings import Settings
from tests.dashboard.backups.backed_up import BackedUp, backed_up, damage, restore
from tests.dashboard.running import Running, running


@pytest.fixture
def server(dashboard: Running, tmp_path: Path) -> BackedUp:
    return backed_up(dashboard, tmp_path / "backups")


def test_a_backup_has_store_files_and_keys_for_its_owner_alone(server: BackedUp) -> None:
    taken = server.take()
    assert manifest.whole_backups(server.folder) == [taken.path]
    names = set(taken.manifest.files)
    assert {"rankzero.db", "token", "join-token", "metrics-token"} <= names
    contents = {(taken.path / name).read_bytes() for name in names}
    assert {b"first line\n", b"weights of step 1"} <= contents
    modes = {stat.S_IMODE(path.stat().st_mode) for path in taken.path.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE(taken.path.stat().st_mode) == 0o700
    assert not taken.manifest.missing


def test_the_next_backup_copies_what_is_new_and_links_the_rest(server: BackedUp) -> None:
    first = server.take()
    server.append(b"second line\n", len(b"first line\n"))
    new = server.checkpoint(b"weights of step 2", 2)
    second = server.take()
    old_names = set(first.manifest.files) - {"rankzero.db"}
    links = {name for name in old_names if (second.path / name).samefile(first.path / name)}
    grown = old_names - links
    assert {(second.path / name).read_bytes() for name in grown} >= {b"first line\nsecond line\n"}
    assert all("/" in name and not name.startswith("files/checkpoints") for name in grown)
    assert (second.path / f"files/checkpoints/{new.name}").read_bytes() == b"weights of step 2"
    assert not any(path.samefile(new) for path in second.path.rglob("*") if path.is_file())


def test_only_bytes_that_the_copied_store_names_count(server: BackedUp) -> None:
    (log,) = (path for path in server.files.iterdir() if path.is_file() and path.read_bytes() == b"first line\n")
    with log.open("ab") as file:
        file.write(b"not in the store ye")
    taken = server.take()
    assert (taken.path / "files" / log.name).read_bytes() == b"first line\n"


def test_the_oldest_are_deleted_and_only_whole_ones_count(server: BackedUp) -> None:
    names = [server.take().path.name for _ in range(4)]
    left = server.folder / "20200101-000000"
    left.mkdir()
    (left / "token").touch()
    mine = server.folder / "notes"
    mine.mkdir()
    assert taking.keep_newest(server.folder, 2) == names[:2]
    assert [path.name for path in manifest.whole_backups(server.folder)] == names[2:]
    assert mine.exists() and not left.exists()


def test_an_interrupted_backup_does_not_count_and_the_next_one_completes_it(
    server: BackedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(manifest, "write_manifest", interrupt)
        with pytest.raises(KeyboardInterrupt):
            server.take()
    assert manifest.whole_backups(server.folder) == []
    (copied,) = (server.folder / "unfinished/files/checkpoints").iterdir()
    inode = copied.stat().st_ino
    (server.folder / "unfinished/files/999").touch()
    taken = server.take()
    assert (taken.path / f"files/checkpoints/{copied.name}").stat().st_ino == inode
    assert not (taken.path / "files/999").exists()


def test_a_damaged_checkpoint_of_the_server_is_named_and_not_in_the_backup(server: BackedUp) -> None:
    (stored,) = (server.files / "checkpoints").iterdir()
    damage(stored)
    taken = server.take()
    name = f"files/checkpoints/{stored.name}"
    assert taken.manifest.missing == {name: "has another SHA-256 than when it arrived"}
    assert name not in taken.manifest.files and not (taken.path / name).exists()


def test_a_checkpoint_that_the_server_has_lost_stays_in_the_backups(server: BackedUp, tmp_path: Path) -> None:
    (stored,) = (server.files / "checkpoints").iterdir()
    server.take()
    stored.unlink()
    taken = [server.take() for _ in range(2)][-1]
    assert taken.manifest.missing == {f"files/checkpoints/{stored.name}": "is missing"}
    taking.keep_newest(server.folder, 1)
    assert restore(taken.path, tmp_path / "new").inventory.missing == 0
    assert (tmp_path / "new/files/checkpoints" / stored.name).read_bytes() == b"weights of step 1"


def test_a_folder_that_would_be_lost_with_the_server_is_refused(server: BackedUp) -> None:
    for folder in (server.settings.data / "backups/mine", server.files / "x"):
        server.folder = folder
        with pytest.raises(BackupUnusable, match="would be lost with it"):
            server.take()


def test_backups_of_another_server_are_not_mixed_with_these(server: BackedUp, tmp_path: Path) -> None:
    server.take()
    with running(tmp_path / "other") as other:
        another = backed_up(other, server.folder)
        with pytest.raises(BackupUnusable, match="another server"):
            another.take()


def test_a_restored_server_has_everything_and_goes_on_with_its_backups(server: BackedUp, tmp_path: Path) -> None:
    taken, token = server.take(), server.dashboard.token
    data = tmp_path / "machine/data"
    restored = restore(taken.path, data)
    assert restored.counts == {"runs": 1, "points": 2, "files": 2, "checkpoints": 1}
    assert restored.inventory.missing == 0
    assert [path.name for path in data.parent.iterdir()] == ["data"]
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    with running(data) as after:
        assert after.token == token
        (run,) = after.http.get("/api/runs").json()
        (checkpoint,) = after.http.get(f"/api/runs/{run['id']}/checkpoints").json()
        assert after.http.get(f"/api/checkpoints/{checkpoint['id']}/file").content == b"weights of step 1"
        assert b"first line" in after.http.get(f"/api/runs/{run['id']}/logs").content
        again = taking.take_backup(after.service.settings, server.folder, after.service.store.backup, server.now + 9e5)
        name = f"files/checkpoints/{checkpoint['id']}"
        assert (again.path / name).samefile(taken.path / name)


def test_nothing_is_restored_over_anything(server: BackedUp, tmp_path: Path) -> None:
    taken, data = server.take(), tmp_path / "mine"
    data.mkdir()
    (data / "thesis.tex").write_text("mine")
    with pytest.raises(BackupUnusable, match=rf"{data} is not empty.*mv {data}"):
        restore(taken.path, data)
    assert [path.name for path in data.iterdir()] == ["thesis.tex"]
    (data / "thesis.tex").unlink()
    restore(taken.path, data)
    assert (data / "rankzero.db").exists()


@pytest.mark.parametrize("name", ["rankzero.db", "token"])
def test_a_damaged_store_or_key_is_refused(server: BackedUp, tmp_path: Path, name: str) -> None:
    taken = server.take()
    damage(taken.path / name)
    with pytest.raises(BackupUnusable, match=r"has another SHA-256.*--from NAME"):
        restore(taken.path, tmp_path / "new")
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob(".new*"))


def test_a_damaged_checkpoint_is_not_listed_and_its_node_is_asked(server: BackedUp, tmp_path: Path) -> None:
    server.append(b"a last line\n", len(b"first line\n"))
    server.node.report(server.task, "succeeded", exit_code=0)
    taken = server.take()
    (name,) = (name for name in taken.manifest.files if name.startswith("files/checkpoints/"))
    damage(taken.path / name)
    _, drilled, damaged = restoring.drilled(taken.path, server.now)
    assert list(damaged) == [name] and drilled.counts["checkpoints"] == 0
    restored = restore(taken.path, tmp_path / "new", {name: "has another SHA-256"})
    assert restored.counts["checkpoints"] == 0 and len(restored.inventory.checkpoints) == 1
    with running(tmp_path / "new") as after:
        (run,) = after.http.get("/api/runs").json()
        (checkpoint,) = after.http.get(f"/api/runs/{run['id']}/checkpoints").json()
        assert not checkpoint["complete"] and checkpoint["is_asked_for_again"]
        assert "missing on the server" in checkpoint["trouble"]


def test_a_drill_restores_and_leaves_nothing(server: BackedUp) -> None:
    taken = server.take()
    before = sorted(server.folder.rglob("*"))
    written, restored, damaged = restoring.drilled(taken.path, server.now)
    assert (written, damaged) == (taken.manifest, {})
    assert restored.counts == {"runs": 1, "points": 2, "files": 2, "checkpoints": 1}
    assert sorted(server.folder.rglob("*")) == before
    again = restoring.drilled(taken.path, server.now)
    assert again[2] == {}, "the drill changed the backup"


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "files/../../x", "manifest.json", "a//b", "a\0b"])
def test_a_manifest_names_nothing_outside_its_backup(server: BackedUp, tmp_path: Path, name: str) -> None:
    taken = server.take()
    path = taken.path / manifest.MANIFEST
    written = json.loads(path.read_text())
    written["files"][name] = written["files"]["token"]
    path.write_text(json.dumps(written))
    with pytest.raises(BackupUnusable, match="is damaged"):
        restore(taken.path, tmp_path / "new")


def test_a_link_in_a_backup_is_not_followed(server: BackedUp, tmp_path: Path) -> None:
    taken = server.take()
    secret = tmp_path / "secret"
    shutil.copy(taken.path / "metrics-token", secret)
    (taken.path / "metrics-token").unlink()
    (taken.path / "metrics-token").symlink_to(secret)
    with pytest.raises((BackupUnusable, OSError)):
        restore(taken.path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_files_elsewhere_are_restored_there(server: BackedUp, tmp_path: Path) -> None:
    taken = server.take()
    settings = Settings(data=tmp_path / "new", files=tmp_path / "disk/files")
    (tmp_path / "disk").mkdir()
    restoration = restoring.Restoration(taken.path, settings)
    assert restoration.copy() == {}
    assert restoration.settle(server.now).inventory.missing == 0
    restoration.finish()
    assert (tmp_path / "disk/files/checkpoints").is_dir() and not (tmp_path / "new/files").exists()
    assert (tmp_path / "new/rankzero.db").exists()


def test_a_disk_that_is_mounted_as_the_data_directory_gets_the_files_and_the_store_last(
    server: BackedUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, data = server.take(), tmp_path / "volume"
    (data / "lost+found").mkdir(parents=True)
    inode = data.stat().st_ino
    monkeypatch.setattr(Path, "is_mount", lambda path: path == data)
    restored = restore(taken.path, data)
    assert restored.counts["checkpoints"] == 1 and data.stat().st_ino == inode
    names = {path.name for path in data.iterdir()}
    assert names == {"lost+found", "files", "join-token", "metrics-token", "rankzero.db", "token"}


def test_two_backups_of_one_second_have_names_of_their_own(server: BackedUp) -> None:
    first = server.take()
    server.now -= 86400.0
    second = server.take()
    assert second.path.name == f"{first.path.name}-2"
    assert manifest.whole_backups(server.folder) == [first.path, second.path]
    assert manifest.chosen_backup(server.folder, None) == second.path


def test_a_backup_is_chosen_by_name(server: BackedUp, tmp_path: Path) -> None:
    with pytest.raises(BackupUnusable, match="no whole backup"):
        manifest.chosen_backup(tmp_path / "none", None)
    first = server.take()
    server.take()
    assert manifest.chosen_backup(server.folder, first.path.name) == first.path
    with pytest.raises(BackupUnusable, match=first.path.name):
        manifest.chosen_backup(server.folder, "20200101-000000")


def test_a_manifest_of_a_newer_version_is_refused(server: BackedUp) -> None:
    taken = server.take()
    path = taken.path / manifest.MANIFEST
    path.write_text(path.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(BackupUnusable, match="newer Rankzero"):
        manifest.read_manifest(taken.path)
    assert isinstance(taken.manifest, BackupManifest)
