"""A rewritten checkpoint as a list of pieces: new bytes, stretches of the old file, tensors laid out anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from worker.checkpoints.copies import copy_bytes
from worker.checkpoints.layout import Region, Unreadable

CHUNK_BYTES = 16 * 1024 * 1024


class CannotRewrite(Exception):
    """Why there can be no such copy, in one sentence."""


@dataclass(frozen=True)
class Strided:
    """A tensor that is not contiguous in its storage: written row by row."""

    region: Region
    item_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        last = sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))
        if (last + 1) * self.item_bytes > self.region.size:
            raise Unreadable("a tensor goes beyond the end of its storage")

    @property
    def size(self) -> int:
        """In bytes."""
        return prod(self.shape) * self.item_bytes


Piece = bytes | Region | Strided


@dataclass(frozen=True)
class Rewriting:
    """What to write, and what a person should know of it."""

    pieces: Sequence[Piece]
    notes: Sequence[str]

    @property
    def size_bytes(self) -> int:
        """Of the rewritten file."""
        return sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in self.pieces)

    @property
    def is_unchanged(self) -> bool:
        """Nothing was to do: the file is already as it is wanted."""
        return len(self.pieces) == 1 and isinstance(self.pieces[0], Region)


def patched(whole: Region, patches: Sequence[tuple[int, int, bytes]]) -> list[Piece]:
    """The region with other bytes in some places: (where, how many are replaced, by what)."""
    pieces: list[Piece] = []
    at = 0
    for start, size, data in sorted(patches):
        pieces += [whole.part(at, start - at), data]
        at = start + size
    return [*pieces, whole.part(at, whole.size - at)]


def write(pieces: Sequence[Piece], target: int) -> None:
    """One after the other, with flat memory. Raises OSError, CannotRewrite."""
    at = 0
    for piece in pieces:
        if isinstance(piece, bytes):
            written = _write_bytes(target, piece, at)
        elif isinstance(piece, Region):
            written = copy_bytes(piece.descriptor, target, piece.size, offset=at, since=piece.begins)
            if written != piece.size:
                raise CannotRewrite("The checkpoint changed while it was read.")
        else:
            written = _write_strided(target, piece, at)
        at += written


def _write_bytes(target: int, data: bytes | memoryview, at: int) -> int:
    left = memoryview(data)
    while left:
        written = os.pwrite(target, left, at)
        left, at = left[written:], at + written
    return len(data)


def _write_strided(target: int, tensor: Strided, at: int) -> int:
    """Some rows at a time; the system reads of the file what they need."""
    import numpy as np

    item = np.dtype(f"V{tensor.item_bytes}")
    count = tensor.region.size // tensor.item_bytes
    with os.fdopen(os.dup(tensor.region.descriptor), "rb") as file:
        flat = np.memmap(file, item, mode="r", offset=tensor.region.begins, shape=(count,))
    steps = tuple(stride * tensor.item_bytes for stride in tensor.strides)
    view = np.lib.stride_tricks.as_strided(flat, tensor.shape, steps, writeable=False)
    row_bytes = max(1, prod(tensor.shape[1:]) * tensor.item_bytes)
    rows, written = max(1, CHUNK_BYTES // row_bytes), 0
    for first in range(0, tensor.shape[0], rows):
        written += _write_bytes(target, view[first : first + rows].tobytes(), at + written)
    return written
