"""The folders of watched commands below a data directory."""

from __future__ import annotations

import os
from pathlib import Path

from worker.watched.folder import all_folders


def test_folders_are_listed_by_age_and_one_that_is_going_is_left_out(tmp_path: Path) -> None:
    for name, made_at in (("newer", 2000), ("older", 1000)):
        (tmp_path / "watched" / name).mkdir(parents=True)
        (tmp_path / "watched" / name / "watch.json").touch()
        os.utime(tmp_path / "watched" / name / "watch.json", (made_at, made_at))
    (tmp_path / "watched/going").mkdir()
    (tmp_path / "watched/loop").symlink_to("loop")
    assert [folder.name for folder in all_folders(tmp_path)] == ["older", "newer"]
    assert all_folders(tmp_path / "nowhere") == []
