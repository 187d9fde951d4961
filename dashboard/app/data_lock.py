"""One dashboard to a data directory."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboard.security.token_files import make_private_directory


class AlreadyRunning(Exception):
    """Another dashboard works on this data directory."""


@contextmanager
def alone_on(data: Path) -> Iterator[None]:
    """Nobody else works on this data directory meanwhile. Raises AlreadyRunning."""
    make_private_directory(data)
    with (data / "dashboard.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"Another dashboard already works on {data}. Stop it first, or choose another --data directory."
            ) from None
        yield
