"""Files and folders of one owner: written whole or not at all, locked, and there after a power failure."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

SPARE_BYTES = 4096


def write_private(path: Path, content: str, spare: Path | None = None) -> None:
    """Replace a file atomically; only its owner can ever read it.

    On a full disk the `spare` file's block is used."""
    try:
        fresh = draft(path, content)
    except OSError as error:
        if spare is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        fresh = _overwritten(spare, content)
    fresh.replace(path)


def spare_path(data: Path) -> Path:
    """The file that reserves a block, so that a dashboard can publish its address on a full disk."""
    return data / ".spare"


def keep_spare(data: Path) -> None:
    """Create the spare file if it is missing; after a failure the next call tries again."""
    if not spare_path(data).exists():
        with suppress(OSError):
            draft(spare_path(data), "\0" * SPARE_BYTES).replace(spare_path(data))


def make_private_directory(path: Path) -> None:
    """Make a directory that only its owner may enter, whatever the umask."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of this file, which ends with the process. Raises BlockingIOError where another one holds it."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def sync_folder(folder: Path) -> None:
    """Flush the folder, without which a rename may not survive a power failure."""
    if sys.platform == "linux":
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def draft(path: Path, content: str) -> Path:
    """Write the content to a new file beside the path and return it, to be linked or renamed. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return fresh


def _overwritten(spare: Path, content: str) -> Path:
    """The spare file, overwritten with the content in its own block."""
    with spare.open("r+b") as file:
        file.write(content.encode())
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    return spare


# A lock that lets only one dashboard use a data directory.


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
