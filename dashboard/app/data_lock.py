"""A lock that lets only one dashboard use a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dashboard.private_files import hold_lock, make_private_directory


class AlreadyRunning(Exception):
    """Another dashboard uses this data directory."""


@contextmanager
def lock_data_directory(data: Path) -> Iterator[None]:
    """Hold the data directory's lock. Raises AlreadyRunning when another dashboard holds it."""
    make_private_directory(data)
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(data / "dashboard.lock"))
        except BlockingIOError:
            raise AlreadyRunning(
                f"Another dashboard already uses {data}. Stop it first, or choose another --data directory."
            ) from None
        yield
