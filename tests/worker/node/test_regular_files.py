"""Only regular files are opened: nothing waits for the other end of a pipe, and nothing stays open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.node.processes import is_locked, take_lock
from worker.node.regular_files import append, bytes_of, open_emptied, open_regular
from worker.node.state_files import read_object, write_whole

OPENINGS: list[Callable[[Path], object]] = [open_regular, bytes_of, open_emptied, lambda path: append(path, "x")]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_and_leaves_nothing_open(
    tmp_path: Path, make: Callable[[Path], None], opening: Callable[[Path], object]
) -> None:
    make(tmp_path / "name")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError):
        opening(tmp_path / "name")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_text_is_appended_to_what_is_there_and_replaces_it_in_an_emptied_file(tmp_path: Path) -> None:
    for text in ("first\n", "second é\n"):
        append(tmp_path / "name", text)
    assert (tmp_path / "name").read_text() == "first\nsecond é\n"
    assert (tmp_path / "name").stat().st_mode & 0o777 == 0o600
    with open_emptied(tmp_path / "name") as file:
        file.write(b"x")
    assert bytes_of(tmp_path / "name") == b"x"


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_state_file_waits_for_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.json")
    assert read_object(tmp_path / "state.json") == {}
    write_whole(tmp_path / "state.json", "{}")
    os.mkfifo(tmp_path / ".state.json.tmp")
    with pytest.raises(OSError):
        write_whole(tmp_path / "state.json", "{}")


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_lock_has_its_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")
    lock = take_lock(tmp_path / "lock")
    assert is_locked(tmp_path / "lock")
    os.close(lock)
