"""Checkpoints on the server's disk: how they are written, and what is remembered of those that arrive."""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path

import pytest

from dashboard.storage.disk import MOST_HASHED, Disk
from dashboard.storage.files import BLOCK_BYTES, Files, Pieces, write_past_cache
from db.models import Checkpoint

CONTENT = b"one" * 1000


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(id=number, size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


def test_abandoned_uploads_are_forgotten_and_may_still_go_on(tmp_path: Path) -> None:
    disk = Disk(Files(tmp_path, 0))
    for number in range(3 * MOST_HASHED):
        assert disk.add(checkpoint(number), 0, memoryview(CONTENT[:1000])) == 1000
    assert len(disk._arrived) == MOST_HASHED
    for number in (0, 3 * MOST_HASHED - 1):  # a forgotten one is read again, to be checked
        assert disk.add(checkpoint(number), 1000, memoryview(CONTENT[1000:])) == len(CONTENT)
        assert disk.finish(checkpoint(number), None, [])
        assert (tmp_path / "checkpoints" / str(number)).read_bytes() == CONTENT


@pytest.mark.parametrize("offset", [0, BLOCK_BYTES, BLOCK_BYTES + 7])
@pytest.mark.parametrize("memory", [mmap.mmap(-1, 5 * BLOCK_BYTES), bytearray(5 * BLOCK_BYTES)])
@pytest.mark.parametrize("size", [1, 2 * BLOCK_BYTES, 4 * BLOCK_BYTES + 100])
def test_bytes_of_any_place_and_memory_are_written_past_the_cache(
    tmp_path: Path, offset: int, memory: mmap.mmap | bytearray, size: int
) -> None:
    path, before = tmp_path / "file", os.urandom(4 * BLOCK_BYTES)
    path.write_bytes(before)
    content = os.urandom(size)
    memory[:size] = content
    with memoryview(memory) as view:
        write_past_cache(path, offset, view[:size])
    after = path.read_bytes()
    assert after[: offset + size] == before[:offset] + content
    assert len(after) == offset + size


def test_the_memory_of_pieces_is_used_again_up_to_a_limit() -> None:
    pieces = Pieces(kept_bytes=8192)
    views = [memoryview(pieces.take(4096))[:10] for _ in range(3)]
    for view in views:
        pieces.give_back(view)
    pieces.give_back(memoryview(b"of another kind"))
    again = [pieces.take(4096) for _ in range(3)]
    assert [any(memory is view.obj for view in views) for memory in again] == [True, True, False]
    assert len(pieces.take(8192)) == 8192
