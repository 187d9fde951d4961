"""Locks on files, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def take_lock(path: Path) -> int:
    """Create and lock a file; returns its open descriptor.

    Raises BlockingIOError where another process holds it, OSError where it cannot be written."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file."""
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
