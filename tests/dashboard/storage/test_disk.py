"""Checkpoints on the server's disk: what is remembered of those that arrive."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dashboard.storage.disk import MOST_HASHED, Disk
from dashboard.storage.files import Files
from db.models import Checkpoint

CONTENT = b"one" * 1000


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(id=number, size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


def test_abandoned_uploads_are_forgotten_and_may_still_go_on(tmp_path: Path) -> None:
    disk = Disk(Files(tmp_path, 0))
    for number in range(3 * MOST_HASHED):
        assert disk.add(checkpoint(number), 0, bytearray(CONTENT[:1000])) == 1000
    assert len(disk._arrived) == MOST_HASHED
    for number in (0, 3 * MOST_HASHED - 1):  # a forgotten one is read again, to be checked
        assert disk.add(checkpoint(number), 1000, bytearray(CONTENT[1000:])) == len(CONTENT)
        assert disk.finish(checkpoint(number), None, [])
        assert (tmp_path / "checkpoints" / str(number)).read_bytes() == CONTENT
