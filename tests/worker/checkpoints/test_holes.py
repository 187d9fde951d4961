"""A checkpoint with holes is copied with them, and the copying of a large one can be ended."""

from __future__ import annotations

import hashlib
import os

import pytest

from worker.checkpoints.copies import copy_bytes, copy_file
from worker.checkpoints.sums import sha256_of
from worker.checkpoints.watching import CheckpointWatch
from worker.node.holes import BLOCK_BYTES
from worker.node.run_files import file_key

MIB = 1 << 20


@pytest.fixture
def sparse(tmp_path):
    """64 MiB of which two are written; it ends in a hole."""
    path = tmp_path / "work/last.pt"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(os.urandom(MIB))
        file.seek(32 * MIB)
        file.write(os.urandom(MIB))
        file.truncate(64 * MIB)
    if path.stat().st_blocks * BLOCK_BYTES > 8 * MIB:
        pytest.skip("this file system has no holes")
    return path


def test_the_copy_has_the_same_bytes_and_holes(sparse, tmp_path):
    copy = tmp_path / "copy"
    assert copy_file(sparse, copy, file_key(sparse.stat()))
    assert copy.read_bytes() == sparse.read_bytes()
    assert copy.stat().st_blocks * BLOCK_BYTES < 8 * MIB


def test_the_sum_counts_the_zeros_of_holes(sparse):
    assert sha256_of(sparse, [], lambda: None) == hashlib.sha256(sparse.read_bytes()).hexdigest()


def test_a_copy_needs_room_for_what_is_written_alone(sparse, tmp_path):
    watch = CheckpointWatch([sparse.parent], tmp_path / "outbox", reserve_bytes=0, free_bytes=lambda path: 8 * MIB)
    (copy,) = watch.step(0.0, final=True)
    assert copy.size_bytes == 64 * MIB and watch.notice is None


def test_a_copy_that_is_given_up_leaves_nothing(sparse, tmp_path, monkeypatch):
    watch = CheckpointWatch([sparse.parent], tmp_path / "outbox", reserve_bytes=0)
    before, pieces = os.copy_file_range, []

    def end_meanwhile(*what):
        watch.end()
        pieces.append(before(*what))
        return pieces[-1]

    monkeypatch.setattr("worker.checkpoints.copies._PIECE_BYTES", MIB // 4)
    monkeypatch.setattr(os, "copy_file_range", end_meanwhile)
    assert watch.step(0.0, final=True) == []
    assert pieces == [MIB // 4]
    assert [path.name for path in (tmp_path / "outbox").iterdir()] in ([], ["taken.json"])


def test_a_source_that_became_shorter_is_told_by_the_number_of_bytes(tmp_path):
    (tmp_path / "short").write_bytes(b"x" * 10)
    with (tmp_path / "short").open("rb") as source, (tmp_path / "copy").open("wb") as copy:
        assert copy_bytes(source.fileno(), copy.fileno(), 100) == 10
