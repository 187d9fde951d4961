"""Holes of sparse files: stretches that were never written, and hold zeros without taking space on the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

LONG_HOLE_BYTES = 256 * 1024 * 1024
"""A shorter hole is copied as the zeros it stands for."""
BLOCK_BYTES = 512
"""Unit in which a file's status counts its blocks."""


def data_after(fd: int, offset: int) -> int:
    """Return where the next written byte at or after `offset` may be; the file's size if there is none.

    Without holes, or on a file system that does not tell them, that is `offset`."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        return max(offset, os.fstat(fd).st_size) if error.errno == errno.ENXIO else offset


def first_hole(path: Path, status: os.stat_result, offset: int) -> tuple[int, int] | None:
    """Return begin and end of the first long hole at or after `offset`; None if there is none, or the file is gone."""
    if status.st_size - status.st_blocks * BLOCK_BYTES < LONG_HOLE_BYTES:
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        while (begin := hole_after(fd, offset)) < status.st_size:
            offset = data_after(fd, begin)
            if offset - begin >= LONG_HOLE_BYTES:
                return begin, offset
            if offset == begin:
                return None
        return None
    finally:
        os.close(fd)


def hole_after(fd: int, offset: int) -> int:
    """Return where the next hole at or after `offset` begins; the file's size if there is none, or none is told."""
    try:
        return os.lseek(fd, offset, os.SEEK_HOLE)
    except OSError:
        return os.fstat(fd).st_size
