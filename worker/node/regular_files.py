"""Open what a training's processes may have replaced: never a pipe, which would hold up the worker for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for a pipe, a socket or a device."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def bytes_of(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError."""
    with open_regular(path) as file:
        return file.read()
