"""A lock that lets only one dashboard use a data directory."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboard.security.token_files import make_private_directory


class AlreadyRunning(Exception):
    """Another dashboard uses this data directory."""


@contextmanager
def lock_data_directory(data: Path) -> Iterator[None]:
    """Hold the data directory's lock. Raises AlreadyRunning when another dashboard holds it."""
    make_private_directory(data)
    with (data / "dashboard.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"Another dashboard already uses {data}. Stop it first, or choose another --data directory."
            ) from None
        yield
