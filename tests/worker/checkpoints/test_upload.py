"""A checkpoint on its way to the server: how much a request carries, and what ends it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from worker.checkpoints import upload
from worker.checkpoints.upload import CheckpointUploader, send_through_server
from worker.checkpoints.watching import CheckpointCopy
from worker.session.answers import CheckpointUpload
from worker.session.bodies import READ_BYTES, BodyLimit, FilePart, UploadInterrupted
from worker.session.client import TaskRef

MIB = 1024 * 1024


class Server:
    """Takes whatever arrives."""

    def __init__(self) -> None:
        self.body_limit = BodyLimit()
        self.sizes: list[int] = []
        self.content = b""

    def send_checkpoint(self, checkpoint_id: int, offset: int, part: FilePart) -> int:
        assert offset == len(self.content)
        self.sizes.append(len(part) // MIB)
        self.content += b"".join(part)
        return len(self.content)


@pytest.fixture
def copy(tmp_path: Path) -> CheckpointCopy:
    content = bytes(range(256)) * (40 * MIB // 256)
    (tmp_path / "copy").write_bytes(content)
    return CheckpointCopy("last.pt", tmp_path / "copy", 1, len(content), "", 0.0, (0, 0, 0))


def sent(copy: CheckpointCopy, **place: int) -> list[int]:
    """The sizes of the requests in MiB."""
    server = Server()
    where = CheckpointUpload(checkpoint_id=1, offset=0, complete=False, **place)
    send_through_server(server, copy, where, lambda: True)  # type: ignore[arg-type]
    assert server.content == copy.path.read_bytes()
    return server.sizes


def test_requests_double_while_they_are_quick(copy: CheckpointCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "QUICK_S", 600.0)
    assert sent(copy, batch_bytes=64 * MIB) == [4, 8, 16, 12]
    assert sent(copy, batch_bytes=10 * MIB) == [4, 8, 10, 10, 8]
    assert sent(copy, batch_bytes=2 * MIB) == [2] * 20


def test_requests_stay_small_where_they_take_long(copy: CheckpointCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "QUICK_S", 0.0)
    assert sent(copy, batch_bytes=64 * MIB) == [4] * 10


def test_a_bucket_gets_whole_parts(copy: CheckpointCopy) -> None:
    assert sent(copy, batch_bytes=16 * MIB, part_bytes=16 * MIB) == [16, 16, 8]


def test_a_part_of_a_file_is_read_in_pieces_until_the_worker_ends(copy: CheckpointCopy) -> None:
    answers: Iterator[bool] = iter([True, True, False])
    with copy.path.open("rb") as file:
        pieces = iter(FilePart(file.fileno(), 7, MIB, lambda: next(answers)))
        expected = copy.path.read_bytes()[7:]
        assert next(pieces) == expected[:READ_BYTES]
        assert next(pieces) == expected[READ_BYTES : 2 * READ_BYTES]
        with pytest.raises(UploadInterrupted):
            next(pieces)


def test_a_file_that_became_shorter_is_not_sent(copy: CheckpointCopy) -> None:
    with copy.path.open("rb") as file, pytest.raises(FileNotFoundError):
        list(FilePart(file.fileno(), copy.size_bytes - 5, 6, lambda: True))


class Watch:
    """One copy to be sent, until it is forgotten."""

    def __init__(self, copy: CheckpointCopy) -> None:
        self._copies = [copy]

    def pending(self) -> list[CheckpointCopy]:
        return list(self._copies)

    def forget(self, copy: CheckpointCopy) -> None:
        self._copies.remove(copy)


def pipe_at(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("replace", [Path.unlink, pipe_at])
def test_copy_that_is_gone_is_not_called_damaged(
    copy: CheckpointCopy, caplog: pytest.LogCaptureFixture, replace: Callable[[Path], None]
) -> None:
    replace(copy.path)
    watch = Watch(copy)
    uploader = CheckpointUploader(watch, None, TaskRef(1, 0), "abcdefghij/1")  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        uploader.send(None, lambda: True)
    assert watch.pending() == []
    assert "the copy of last.pt is gone" in caplog.text and "damaged" not in caplog.text
