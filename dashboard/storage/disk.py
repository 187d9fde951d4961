"""Checkpoints in the directory of files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from dashboard.errors import Rejection
from dashboard.private_files import sync_folder
from dashboard.storage.checkpoint_storage import PartLink, Via
from dashboard.storage.downloads import DigestResponse
from dashboard.storage.files import Files, sync, write_past_cache
from db.models import Checkpoint
from domain.text.formats import MIB


class Disk:
    """Checkpoints on the server's disk."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._arrived: dict[int, _Arrived] = {}
        self._hashers = ThreadPoolExecutor(HASHERS, "hashing")

    def batch_bytes(self, size_bytes: int) -> int:
        """See `CheckpointStorage`."""
        return BATCH_BYTES

    def piece_bytes(self, size_bytes: int) -> int:
        """See `CheckpointStorage`."""
        return PIECE_BYTES

    def part_bytes(self, size_bytes: int) -> int | None:
        """See `CheckpointStorage`."""
        return None

    def require_free_space(self, size_bytes: int) -> None:
        """See `CheckpointStorage`; a reserve stays free for the store."""
        self._files.require_free_space(size_bytes)

    def durable_bytes(self, checkpoint: Checkpoint, *, refresh: bool) -> int:
        """See `CheckpointStorage`."""
        try:
            return min(checkpoint.received_bytes, self._files.arriving(checkpoint.id).stat().st_size)
        except FileNotFoundError:
            return 0

    def add(self, checkpoint: Checkpoint, offset: int, content: memoryview) -> int:
        """See `CheckpointStorage`."""
        arrived = self._arrived.pop(checkpoint.id, None) if offset else _Arrived()
        if arrived is None or arrived.size_bytes != offset:
            write_past_cache(self._files.arriving(checkpoint.id), offset, content)
        else:
            hashing = self._hashers.submit(arrived.hashing.update, content)
            try:
                write_past_cache(self._files.arriving(checkpoint.id), offset, content)
            finally:
                hashing.result()  # it reads memory that is the caller's again
            arrived.size_bytes += len(content)
            self._arrived[checkpoint.id] = arrived
            for oldest in list(self._arrived)[:-MOST_HASHED]:
                self._arrived.pop(oldest, None)
        return offset + len(content)

    def sync(self, checkpoint: Checkpoint) -> None:
        """See `CheckpointStorage`."""
        sync(self._files.arriving(checkpoint.id))

    def links(self, checkpoint: Checkpoint, first: int, sha256s: Sequence[str]) -> list[PartLink]:
        """See `CheckpointStorage`. Raises Rejection: the disk has no signed addresses."""
        raise Rejection(409, f"Checkpoint {checkpoint.id} goes to the dashboard itself; send its bytes there.")

    def finish(self, checkpoint: Checkpoint, adopted: str | None, part_sha256s: Sequence[str]) -> bool:
        """See `CheckpointStorage`: the file is only read if not all of it arrived in this process."""
        target, arriving = self._files.checkpoint(checkpoint.id), self._files.arriving(checkpoint.id)
        source = self._adoptable(checkpoint, adopted) if adopted is not None else arriving
        if not source.exists() and target.exists():
            source = target  # a crash came between the rename and the entry in the store
        arrived, arrived_sha256 = self._arrived.pop(checkpoint.id, None), None
        if source == arriving and arrived is not None and arrived.size_bytes == checkpoint.size_bytes:
            arrived_sha256 = arrived.hashing.hexdigest()
        if not _is_intact(source, checkpoint, arrived_sha256):
            source.unlink(missing_ok=True)
            return False
        if source != target:
            source.replace(target)
            arriving.unlink(missing_ok=True)
            sync_folder(target.parent)
        return True

    def response(
        self, request: Request, checkpoint: Checkpoint, via: Via, more: Mapping[str, str] | None = None
    ) -> Response:
        """See `CheckpointStorage`."""
        path = self._files.checkpoint(checkpoint.id)
        return DigestResponse.of_file(request, path, checkpoint.sha256, checkpoint.path, more)

    @contextmanager
    def as_file(self, checkpoint: Checkpoint, folder: Path) -> Iterator[Path]:
        """See `CheckpointStorage`."""
        yield self._files.checkpoint(checkpoint.id)

    def _adoptable(self, checkpoint: Checkpoint, name: str) -> Path:
        if name != f"adopted-{checkpoint.id}":  # nobody takes, or has deleted, what another attempt placed there
            raise Rejection(422, f"adopted must be adopted-{checkpoint.id}, a file in the adopt directory.", "adopted")
        return self._files.incoming / name


BATCH_BYTES, PIECE_BYTES = 256 * MIB, 4 * MIB
MOST_HASHED = 64
"""Uploads whose hash is kept between requests: of an abandoned one no further request comes."""
HASHERS = 2
"""Threads that hash pieces while others write them."""


@dataclass
class _Arrived:
    """The leading bytes of a checkpoint that arrived without a gap in this process, and their SHA-256."""

    size_bytes: int = 0
    hashing: hashlib._Hash = field(default_factory=hashlib.sha256)


def _is_intact(path: Path, checkpoint: Checkpoint, arrived_sha256: str | None) -> bool:
    """Whether the file is the checkpoint that was offered; if so, its bytes are durable.

    `arrived_sha256`: its SHA-256, where it was computed while the bytes arrived."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != checkpoint.size_bytes:
            return False
        if (arrived_sha256 or hashlib.file_digest(file, "sha256").hexdigest()) != checkpoint.sha256:
            return False
        os.fsync(descriptor)
        return path.lstat().st_ino == status.st_ino
