"""What every place for checkpoints can do; the routes know no more of it."""

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
"""Through the dashboard, or from the bucket itself by an address it signed."""


@dataclass(frozen=True)
class PartLink:
    """Where a node may PUT one part, and the headers that belong to it."""

    url: str
    headers: Mapping[str, str]


class CheckpointStorage(Protocol):
    """The directory of files, or a bucket. Every method may wait for a disk or a network.

    Raises Rejection with a sentence for what will not change by itself, BucketTrouble for what may."""

    def batch_bytes(self, size_bytes: int) -> int:
        """A checkpoint of that size is made durable in stretches of this many bytes, the last may be shorter."""

    def part_bytes(self, size_bytes: int) -> int | None:
        """The size of the parts that nodes may bring to the place itself; None where they cannot."""

    def require_room(self, size_bytes: int) -> None:
        """Refuse before the first byte what would not fit."""

    def have(self, checkpoint: Checkpoint, *, anew: bool) -> int:
        """How many of its first bytes are durable; `anew`: looked for there, not only remembered."""

    def add(self, checkpoint: Checkpoint, offset: int, content: bytes) -> int:
        """Make a stretch durable; returns the offset up to which it now is."""

    def links(self, checkpoint: Checkpoint, first: int, sha256s: Sequence[str]) -> list[PartLink]:
        """Addresses for the parts from number `first` (1 is the first of all) on."""

    def finish(self, checkpoint: Checkpoint, adopted: str | None, part_sha256s: Sequence[str]) -> bool:
        """Put what has come in its place, proven; False (and gone) when it is not what was offered."""

    def response(
        self, request: Request, checkpoint: Checkpoint, via: Via, more: Mapping[str, str] | None = None
    ) -> Response:
        """The answer to GET or HEAD; `more` are further headers."""

    def as_file(self, checkpoint: Checkpoint, folder: Path) -> AbstractContextManager[Path]:
        """A file with its bytes, in `folder` if it has to be copied for that, as long as it is needed."""
