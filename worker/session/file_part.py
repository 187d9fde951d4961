"""A part of a file as the body of a request, read while it is sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

READ_BYTES = 256 * 1024

MayContinue = Callable[[], bool]
"""Returns False once the worker is ending."""


class UploadInterrupted(Exception):
    """The worker is ending; uploaded bytes stay."""


@dataclass(frozen=True)
class FilePart:
    """`size_bytes` of an open file from `offset` on; iterating raises UploadInterrupted, and FileNotFoundError if the
    file is shorter than that."""

    descriptor: int
    offset: int
    size_bytes: int
    may_continue: MayContinue

    def __len__(self) -> int:
        return self.size_bytes

    def __iter__(self) -> Iterator[bytes]:
        offset, end = self.offset, self.offset + self.size_bytes
        while offset < end:
            if not self.may_continue():
                raise UploadInterrupted
            piece = os.pread(self.descriptor, min(READ_BYTES, end - offset), offset)
            if not piece:
                raise FileNotFoundError("the copy is shorter than before")
            yield piece
            offset += len(piece)
