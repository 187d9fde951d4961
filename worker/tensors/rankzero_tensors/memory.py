"""Bytes of tensors, read from files and written to them in place, without numpy and without copies."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import torch

from .sources import CheckpointRefused

STRIP_BYTES = 16 * 1024 * 1024
"""Memory for the rows of a part that is not contiguous in the whole."""


CACHED_BYTES = 1024 * 1024
"""Fits into a core's cache, so that a sum costs no second way to the memory."""


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU, which lives as long as the view."""
    if not tensor.nbytes:
        return memoryview(b"")
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    memory.owner = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def open_file(path: Path) -> FileIO:
    """Open a file for positioned reads. Raises OSError."""
    return FileIO(path, opener=lambda name, _: os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))


def fill(file: FileIO, at: int, target: torch.Tensor) -> int:
    """Read a part that is saved in row-major order from offset `at` into its place in a whole; return the next offset.

    Memory: 16 MiB. Raises CheckpointRefused if the file ends early, OSError."""
    if target.is_contiguous():
        return _read_into(file, at, target)
    if target.nbytes <= STRIP_BYTES:
        strip = torch.empty(target.shape, dtype=target.dtype)
        at = _read_into(file, at, strip)
        target.copy_(strip)
        return at
    dim = next(dim for dim, size in enumerate(target.shape) if size > 1)
    rows = max(1, STRIP_BYTES * target.shape[dim] // target.nbytes)
    for part in torch.split(target, rows, dim):
        at = fill(file, at, part)
    return at


def strips(path: Path, at: int, count: int) -> Iterator[torch.Tensor]:
    """Read so many bytes from an offset through memory that is used again. Raises CheckpointRefused, OSError."""
    memory = torch.empty(min(count, CACHED_BYTES), dtype=torch.uint8)
    end = at + count
    with open_file(path) as file:
        while at < end:
            strip = memory[: end - at]
            at = _read_into(file, at, strip)
            yield strip


def _read_into(file: FileIO, at: int, tensor: torch.Tensor) -> int:
    waiting = bytes_of(tensor)
    while waiting:
        size = os.preadv(file.fileno(), [waiting], at)
        if not size:
            raise CheckpointRefused(f"{Path(str(file.name)).name} ends early: it is damaged, or was not copied whole.")
        waiting, at = waiting[size:], at + size
    return at


def write_at(descriptor: int, data: bytes | memoryview, at: int) -> None:
    """Write all bytes at an offset. Raises OSError."""
    waiting = memoryview(data)
    while waiting:
        size = os.pwrite(descriptor, waiting, at)
        waiting, at = waiting[size:], at + size
