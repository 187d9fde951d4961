"""The operations of every storage for checkpoints; the routes use nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from starlette.requests import Request
from starlette.responses import Response

from db.models import Checkpoint

Via = Literal["server", "bucket"]
"""Download through the dashboard, or from the bucket itself by a signed address."""


@dataclass(frozen=True)
class PartLink:
    """The signed address at which a node may PUT one part, and the headers to send."""

    url: str
    headers: Mapping[str, str]


class CheckpointStorage(Protocol):
    """The directory of files, or a bucket. Every method may wait for a disk or a network.

    Raises Rejection for permanent failures, BucketTrouble for those that may pass."""

    def batch_bytes(self, size_bytes: int) -> int:
        """The most bytes that a node sends in one request, of a checkpoint of that size."""

    def piece_bytes(self, size_bytes: int) -> int:
        """The number of bytes that `add` takes, up to the next multiple of it; fewer only at the end of a request."""

    def part_bytes(self, size_bytes: int) -> int | None:
        """The size of the parts that nodes may upload to the storage directly; None when they cannot."""

    def require_free_space(self, size_bytes: int) -> None:
        """Raises Rejection when the bytes would not fit."""

    def durable_bytes(self, checkpoint: Checkpoint, *, refresh: bool) -> int:
        """The number of leading bytes that are durable; with `refresh`, checked in the storage itself."""

    def add(self, checkpoint: Checkpoint, offset: int, content: memoryview) -> int:
        """Write a piece, which `sync` makes durable; returns the offset up to which all bytes are written."""

    def sync(self, checkpoint: Checkpoint) -> None:
        """Make all bytes that were added durable."""

    def links(self, checkpoint: Checkpoint, first: int, sha256s: Sequence[str]) -> list[PartLink]:
        """Signed addresses for the parts from number `first` (1 is the first one) on."""

    def finish(self, checkpoint: Checkpoint, adopted: str | None, part_sha256s: Sequence[str]) -> bool:
        """Verify and complete the checkpoint; False (and deleted) when it is not what was offered."""

    def response(
        self, request: Request, checkpoint: Checkpoint, via: Via, more: Mapping[str, str] | None = None
    ) -> Response:
        """The response to GET or HEAD, with the headers `more`."""

    def as_file(self, checkpoint: Checkpoint, folder: Path) -> AbstractContextManager[Path]:
        """A file with the checkpoint's bytes while it is needed; a copy in `folder` if necessary."""
