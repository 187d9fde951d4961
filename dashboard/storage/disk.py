"""Checkpoints in the directory of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from dashboard.errors import Rejection
from dashboard.storage.downloads import CheckpointResponse
from dashboard.storage.files import Files
from dashboard.storage.place import PartLink, Via
from db.models import Checkpoint

BATCH_BYTES = 4 * 1024 * 1024


class Disk:
    """Checkpoints on the server's disk."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def batch_bytes(self, size_bytes: int) -> int:
        """See `CheckpointStorage`."""
        return BATCH_BYTES

    def part_bytes(self, size_bytes: int) -> int | None:
        """See `CheckpointStorage`."""
        return None

    def require_free_space(self, size_bytes: int) -> None:
        """See `CheckpointStorage`; a reserve stays free for the store."""
        self._files.require_free_space(size_bytes)

    def durable_bytes(self, checkpoint: Checkpoint, *, refresh: bool) -> int:
        """See `CheckpointStorage`."""
        return min(checkpoint.received_bytes, self._files.arrived_bytes(checkpoint.id))

    def add(self, checkpoint: Checkpoint, offset: int, content: bytes) -> int:
        """See `CheckpointStorage`."""
        self._files.add_to_checkpoint(checkpoint.id, offset, content)
        return offset + len(content)

    def links(self, checkpoint: Checkpoint, first: int, sha256s: Sequence[str]) -> list[PartLink]:
        """See `CheckpointStorage`. Raises Rejection: the disk has no signed addresses."""
        raise Rejection(
            409, f"Checkpoint {checkpoint.id} goes to the dashboard itself; send its bytes there."
        )

    def finish(self, checkpoint: Checkpoint, adopted: str | None, part_sha256s: Sequence[str]) -> bool:
        """See `CheckpointStorage`: the digest is computed from the whole file."""
        return self._files.finish(checkpoint.id, adopted, checkpoint.size_bytes, checkpoint.sha256)

    def response(
        self, request: Request, checkpoint: Checkpoint, via: Via, more: Mapping[str, str] | None = None
    ) -> Response:
        """See `CheckpointStorage`."""
        path = self._files.checkpoint(checkpoint.id)
        return CheckpointResponse.of_file(request, path, checkpoint.sha256, checkpoint.path, more)

    @contextmanager
    def as_file(self, checkpoint: Checkpoint, folder: Path) -> Iterator[Path]:
        """See `CheckpointStorage`."""
        yield self._files.checkpoint(checkpoint.id)
