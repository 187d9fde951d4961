"""Open what a training's processes may have replaced: never a pipe, which would hold up the worker for ever."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, BufferedWriter
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError, also for a pipe, a socket, a device or a folder."""
    return os.fdopen(_descriptor(path, os.O_RDONLY), "rb")


def bytes_of(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError."""
    with open_regular(path) as file:
        return file.read()


def open_emptied(path: Path) -> BufferedWriter:
    """Open a regular file for writing, emptied; a new one is readable by this user only. Raises OSError."""
    return os.fdopen(_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")


def append(path: Path, text: str) -> None:
    """Add text to the end of a regular file; a new one is readable by this user only. Raises OSError."""
    with os.fdopen(_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "wb") as file:
        file.write(text.encode())


def _descriptor(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))
