"""Holes of a sparse checkpoint stay holes in its copy, and its SHA-256 is that of the zeros they stand for.

The copying of a large one can be ended."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from pathlib import Path

import pytest

from worker.checkpoints import copies, sums
from worker.checkpoints.copies import copy_bytes, copy_file, copy_folder
from worker.checkpoints.folders import look
from worker.checkpoints.watching import CheckpointWatch
from worker.node.holes import BLOCK_BYTES
from worker.node.run_files import file_key

MIB = 1024 * 1024
SIZE = 48 * MIB
WRITTEN = {"at the start": [0], "in the middle": [20 * MIB + 512], "at the end": [SIZE - MIB], "nowhere": []}
WRITTEN["here and there"] = [0, 17 * MIB, SIZE - MIB]
SLACK_BYTES = MIB


@pytest.fixture(params=WRITTEN)
def sparse(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint-10" / "model.safetensors"
    path.parent.mkdir()
    (path.parent / "config.json").write_text("{}")
    with path.open("wb") as file:
        file.truncate(SIZE)
        for offset in WRITTEN[request.param]:
            file.seek(offset)
            file.write(os.urandom(MIB))
    assert on_disk(path) < SIZE / 2
    return path


@pytest.fixture(params=["by the kernel", "by reading"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by reading":
        monkeypatch.delattr(os, "copy_file_range")


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * BLOCK_BYTES


def sha256_of(path: Path) -> str | None:
    return sums.sha256_of(path, [], lambda: None)


@pytest.mark.usefixtures("way")
def test_the_copy_of_a_file_takes_no_more_space(sparse: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    assert copy_file(sparse, copy, file_key(sparse.stat()))
    assert copy.read_bytes() == sparse.read_bytes()
    assert on_disk(copy) <= on_disk(sparse) + SLACK_BYTES


@pytest.mark.usefixtures("way")
def test_the_copy_of_a_folder_takes_no_more_space(sparse: Path, tmp_path: Path):
    copy = tmp_path / "copy.tar"
    folder = look(sparse.parent)
    assert folder is not None and copy_folder(folder, copy)
    with tarfile.open(copy) as archive:
        member = archive.extractfile("checkpoint-10/model.safetensors")
        assert member is not None and member.read() == sparse.read_bytes()
    assert on_disk(copy) <= on_disk(sparse) + SLACK_BYTES


def test_the_digest_is_that_of_its_bytes(sparse: Path):
    content = sparse.read_bytes()
    assert sha256_of(sparse) == hashlib.sha256(content).hexdigest()
    begin, end = 10 * MIB + 1, SIZE - 7
    crc = zlib.crc32(content[begin:end])
    assert sums.sha256_of(sparse, [(begin, end, crc)], lambda: None) is not None
    assert sums.sha256_of(sparse, [(begin, end, crc ^ 1)], lambda: None) is None


@pytest.mark.usefixtures("way")
def test_a_file_that_became_shorter_is_copied_up_to_its_end(sparse: Path, tmp_path: Path):
    os.truncate(sparse, 30 * MIB)
    with sparse.open("rb") as source, (tmp_path / "copy").open("wb") as copy:
        assert copy_bytes(source.fileno(), copy.fileno(), SIZE) == 30 * MIB
        assert copy_bytes(source.fileno(), copy.fileno(), MIB, since=40 * MIB) == 0


@pytest.mark.usefixtures("way")
def test_a_part_is_copied_to_another_place(sparse: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    with sparse.open("rb") as source, copy.open("wb") as target:
        assert copy_bytes(source.fileno(), target.fileno(), SIZE - MIB, offset=100, since=MIB) == SIZE - MIB
    assert copy.read_bytes() == bytes(100) + sparse.read_bytes()[MIB:]


def test_a_file_system_that_tells_no_holes(sparse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    expected = sha256_of(sparse)
    monkeypatch.setattr(os, "lseek", refuse)
    copy = tmp_path / "copy"
    assert copies.copy_file(sparse, copy, file_key(sparse.stat()))
    assert sha256_of(copy) == expected == sha256_of(sparse)


@pytest.fixture
def last(tmp_path: Path) -> Path:
    """A checkpoint of one file, alone in its folder: its first part is written, the others are a hole."""
    path = tmp_path / "work" / "last.pt"
    path.parent.mkdir()
    path.write_bytes(os.urandom(MIB))
    os.truncate(path, SIZE)
    return path


def test_a_copy_needs_room_for_what_is_written_alone(last: Path, tmp_path: Path):
    watch = CheckpointWatch([last.parent], tmp_path / "outbox", reserve_bytes=0, free_bytes=lambda path: 8 * MIB)
    (copy,) = watch.step(0.0, final=True)
    assert copy.size_bytes == SIZE and watch.notice is None


def test_a_copy_that_is_given_up_leaves_nothing(last: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    watch = CheckpointWatch([last.parent], tmp_path / "outbox", reserve_bytes=0)
    before, pieces = os.copy_file_range, list[int]()

    def end_meanwhile(*place: int) -> int:
        watch.end()
        pieces.append(before(*place))
        return pieces[-1]

    monkeypatch.setattr(copies, "_PIECE_BYTES", MIB // 4)
    monkeypatch.setattr(os, "copy_file_range", end_meanwhile)
    assert watch.step(0.0, final=True) == []
    assert pieces == [MIB // 4] and watch.notice is None
    assert [path.name for path in (tmp_path / "outbox").iterdir()] in ([], ["taken.json"])
