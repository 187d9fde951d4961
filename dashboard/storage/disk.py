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
    """See `Place`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def batch_bytes(self, size_bytes: int) -> int:
        """See `Place`."""
        return BATCH_BYTES

    def part_bytes(self, size_bytes: int) -> int | None:
        """See `Place`."""
        return None

    def require_room(self, size_bytes: int) -> None:
        """See `Place`; a reserve stays free for the store."""
        self._files.require_room(size_bytes)

    def have(self, checkpoint: Checkpoint, *, anew: bool) -> int:
        """See `Place`."""
        return min(checkpoint.received_bytes, self._files.arrived_bytes(checkpoint.id))

    def add(self, checkpoint: Checkpoint, offset: int, content: bytes) -> int:
        """See `Place`."""
        self._files.add_to_checkpoint(checkpoint.id, offset, content)
        return offset + len(content)

    def links(self, checkpoint: Checkpoint, first: int, sha256s: Sequence[str]) -> list[PartLink]:
        """See `Place`: there are none."""
        raise Rejection(
            409, f"Checkpoint {checkpoint.id} goes to the dashboard itself; send its bytes there."
        )

    def finish(self, checkpoint: Checkpoint, adopted: str | None, part_sha256s: Sequence[str]) -> bool:
        """See `Place`: the whole file is read again."""
        return self._files.finish(checkpoint.id, adopted, checkpoint.size_bytes, checkpoint.sha256)

    def response(
        self, request: Request, checkpoint: Checkpoint, via: Via, more: Mapping[str, str] | None = None
    ) -> Response:
        """See `Place`."""
        path = self._files.checkpoint(checkpoint.id)
        return CheckpointResponse.of_file(request, path, checkpoint.sha256, checkpoint.path, more)

    @contextmanager
    def as_file(self, checkpoint: Checkpoint, folder: Path) -> Iterator[Path]:
        """See `Place`."""
        yield self._files.checkpoint(checkpoint.id)
