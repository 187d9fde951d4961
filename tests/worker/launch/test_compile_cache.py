"""Compiled code is kept on the node for a program's next attempts, until others need the room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from domain.spec import RunSpec
from worker.launch.compile_cache import drop_oldest, folder_of, open_for


def used(data: Path, target: str, at: float, size: int = 8192) -> Path:
    """The folder of a program that compiled `size` bytes and was last started then."""
    folder = Path(open_for(RunSpec(target=target), data, {}) or "")
    (folder / "fx").mkdir()
    (folder / "fx" / "graph").write_bytes(b"x" * size)
    os.utime(folder, (at, at))
    return folder


def test_versions_of_a_program_share_a_folder_and_other_programs_have_their_own(tmp_path: Path):
    first, second = (RunSpec(target="/code", entry="train.py", snapshot=digit * 64) for digit in "ab")
    assert folder_of(first, tmp_path) == folder_of(second, tmp_path)
    assert folder_of(first, tmp_path) != folder_of(RunSpec(target="/code", entry="eval.py"), tmp_path)
    opened = Path(open_for(first, tmp_path, {}) or "")
    assert opened == folder_of(first, tmp_path) and opened.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"])
def test_a_folder_that_the_workers_environment_names_stays(tmp_path: Path, name: str):
    assert open_for(RunSpec(target="/code"), tmp_path, {name: "/theirs"}) is None


def test_the_least_recently_used_make_room_but_for_those_in_use(tmp_path: Path):
    oldest, old, new = (used(tmp_path, f"/{at}", at) for at in (1.0, 2.0, 3.0))
    drop_oldest(tmp_path, {oldest}, most_bytes=20_000)
    assert (oldest.exists(), old.exists(), new.exists()) == (True, False, True)
    open_for(RunSpec(target="/1.0"), tmp_path, {})
    drop_oldest(tmp_path, set(), most_bytes=10_000)
    assert (oldest.exists(), new.exists()) == (True, False)
