"""`rankzero backup DIR`, `restore`, `doctor --restore-drill` and `--collect`, of a server that runs or is stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dashboard.private_files import lock_data_directory
from domain.clock import SYSTEM_CLOCK
from tests.dashboard.backups.backed_up import backed_up, damage
from tests.dashboard.running import running


@pytest.fixture(autouse=True)
def nice(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the command is nicer by: this process is to stay as it is."""
    steps: list[int] = []
    monkeypatch.setattr(os, "nice", steps.append)
    return steps


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a server that is stopped."""
    with running(tmp_path / "data") as dashboard:
        backed_up(dashboard, tmp_path / "unused")
    return tmp_path / "data"


def test_a_server_is_backed_up_and_restored_with_three_commands(
    rankzero: Any, data: Path, tmp_path: Path, nice: list[int]
) -> None:
    folder = tmp_path / "backups"
    code, out, err = rankzero("backup", str(folder), "--data", str(data), "--keep", "2")
    assert (code, err) == (0, "") and f"{folder}/20" in out
    assert nice == [19]
    code, out, err = rankzero("doctor", "--restore-drill", str(folder))
    assert (code, err) == (0, "") and "can be restored: 1 run, 2 points, 2 files and 1 checkpoint" in out
    machine = tmp_path / "machine"
    code, out, err = rankzero("restore", str(folder), "--data", str(machine))
    assert (code, err) == (0, "") and f"rankzero up --data {machine}" in out
    with running(machine) as after:
        assert len(after.http.get("/api/runs").json()) == 1
    code, _, err = rankzero("restore", str(folder), "--data", str(machine))
    assert code == 1 and "is not empty" in err


def test_the_documents_are_complete(rankzero: Any, data: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "backups")
    written = json.loads(rankzero("backup", folder, "--data", str(data), "--json")[1])
    assert (
        written["missing"] == {} and written["deleted"] == [] and 0 < written["copied_bytes"] <= written["size_bytes"]
    )
    again = json.loads(rankzero("backup", folder, "--data", str(data), "--keep", "1", "--json")[1])
    assert again["deleted"] == [Path(written["path"]).name] and again["copied_bytes"] < written["copied_bytes"]
    drilled = json.loads(rankzero("doctor", "--restore-drill", folder, "--json")[1])
    assert (drilled["backup"], drilled["runs"], drilled["damaged"]) == (again["path"], 1, {})
    restored = json.loads(rankzero("restore", folder, "--data", str(tmp_path / "new"), "--json")[1])
    assert (restored["backup"], restored["checkpoints"], restored["missing"]) == (again["path"], 1, 0)


def test_a_running_dashboard_copies_its_store_itself(rankzero: Any, tmp_path: Path) -> None:
    with running(tmp_path / "data", on_port=True) as dashboard, lock_data_directory(tmp_path / "data"):
        server = backed_up(dashboard, tmp_path / "backups")
        code, out, err = rankzero("backup", str(server.folder), "--data", str(server.settings.data))
        assert (code, err) == (0, "") and "written" in out
        assert list((server.settings.data / "backups").iterdir()) == []
        (entry, *_) = dashboard.http.get("/api/audit").json()
        assert "backup" in json.dumps(entry)
        code, _, err = rankzero("doctor", "--collect", "--data", str(server.settings.data))
        assert code == 1 and "stop it" in err


def test_what_cannot_be_backed_up_is_told_with_the_next_step(
    rankzero: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "backups")
    for arguments, words in (
        (("backup", str(data / "inside"), "--data", str(data)), "would be lost with it"),
        (("backup", folder, "--data", str(tmp_path / "none")), "--data"),
        (("restore", str(tmp_path / "none"), "--data", str(tmp_path / "new")), "no whole backup"),
        (("doctor", "--restore-drill", str(tmp_path / "none")), "no whole backup"),
    ):
        code, out, err = rankzero(*arguments)
        assert (code, out) == (1, "") and words in err and err.count("\n") == 1
    code, out, err = rankzero("backup", str(tmp_path / "rankzero.sqlite"), "--data", str(data))
    assert (code, out) == (2, "") and "ends in .db" in err
    monkeypatch.setenv("RANKZERO_DATABASE_URL", "postgresql+psycopg://me@nowhere/x")
    code, _, err = rankzero("backup", folder, "--data", str(data))
    assert code == 1 and "pg_dump" in err


def test_it_repeats_until_it_is_ended_and_names_the_line_for_cron(
    rankzero: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(SYSTEM_CLOCK, "pause", pause)
    assert rankzero("backup", str(tmp_path / "backups"), "--data", str(data), "--every", "1d", "--keep", "7")[0]
    assert pauses == [86400.0, 86400.0]
    assert len([path for path in (tmp_path / "backups").iterdir() if path.is_dir()]) == 2


def test_damaged_files_are_named_and_restored_without_them_on_request(
    rankzero: Any, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    written = json.loads(rankzero("backup", str(folder), "--data", str(data), "--json")[1])
    (checkpoint,) = (Path(written["path"]) / "files/checkpoints").iterdir()
    damage(checkpoint)
    code, out, _ = rankzero("doctor", "--restore-drill", str(folder))
    assert code == 1 and f"files/checkpoints/{checkpoint.name} has another SHA-256" in out
    restored = rankzero("restore", str(folder), "--data", str(tmp_path / "new"), "--yes", "--json")
    assert restored[0] == 0 and list(json.loads(restored[1])["damaged"]) == [f"files/checkpoints/{checkpoint.name}"]


def test_a_backup_of_a_server_that_lacks_files_is_told_by_its_exit_code(
    rankzero: Any, data: Path, tmp_path: Path
) -> None:
    (checkpoint,) = (data / "files/checkpoints").iterdir()
    checkpoint.unlink()
    code, out, err = rankzero("backup", str(tmp_path / "backups"), "--data", str(data))
    assert code == 1 and "written" in out and f"{checkpoint.name} is missing" in err


def test_doctor_names_what_does_not_belong_together_and_collects_it(rankzero: Any, data: Path) -> None:
    def files() -> dict[str, Any]:
        checks = json.loads(rankzero("doctor", "--data", str(data), "--json")[1])
        return next(check for check in checks if check["check"] == "files")

    assert files()["ok"]
    (checkpoint,) = (data / "files/checkpoints").iterdir()
    checkpoint.rename(data / "files/checkpoints/999")
    os.utime(data / "files/checkpoints/999", (1.0, 1.0))
    found = files()
    assert not found["ok"] and f"checkpoint {checkpoint.name}" in found["message"]
    assert "checkpoints/999" in found["message"] and "doctor --collect" in found["message"]
    code, _, err = rankzero("doctor", "--collect", "--data", str(data))
    assert code == 2 and "1 checkpoint would be taken back" in err and "--yes" in err
    assert files() == found
    collected = json.loads(rankzero("doctor", "--collect", "--yes", "--data", str(data), "--json")[1])
    assert (collected["deleted"], collected["checkpoints"]) == (1, 1)
    assert files()["ok"]


def test_no_row_is_taken_back_while_the_disk_with_the_files_is_away(rankzero: Any, data: Path, tmp_path: Path) -> None:
    (data / "files").rename(tmp_path / "elsewhere")
    for is_mount_point in (False, True):
        if is_mount_point:
            (data / "files").mkdir()
        checks = json.loads(rankzero("doctor", "--data", str(data), "--json")[1])
        (message,) = (check["message"] for check in checks if check["check"] == "files" and not check["ok"])
        code, _, err = rankzero("doctor", "--collect", "--yes", "--data", str(data))
        assert code == 1 and "mount the disk" in err and "mount the disk" in message
        assert "mount the disk" in rankzero("backup", str(tmp_path / "backups"), "--data", str(data))[2]
    (data / "files").rmdir()
    (tmp_path / "elsewhere").rename(data / "files")
    assert "files" not in [
        check["check"] for check in json.loads(rankzero("doctor", "--data", str(data), "--json")[1]) if not check["ok"]
    ]
