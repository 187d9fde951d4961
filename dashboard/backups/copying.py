"""Copies and links files of a backup: durable, for their owner alone, and known by their SHA-256."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from dashboard.backups.manifest import BackupEntry
from dashboard.private_files import make_private_directory

Progress = Callable[[int], object]
"""Called with the number of bytes that were just read."""
READ_BYTES = 1024 * 1024


class Damaged(Exception):
    """A file is missing, shorter than it should be, or has another SHA-256; the message is the rest of a sentence."""


def copied(
    source: Path, target: Path, size_bytes: int | None = None, progress: Progress = lambda _: None
) -> BackupEntry:
    """Copy the first bytes of a file that may grow meanwhile to a new file, and return its entry.

    `size_bytes`: None for all that it has now. Raises Damaged, OSError."""
    reading = _opened(source)
    with os.fdopen(reading, "rb", buffering=0):
        status = os.fstat(reading)
        wanted_bytes = status.st_size if size_bytes is None else size_bytes
        make_private_directory(target.parent)
        target.unlink(missing_ok=True)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            sha256 = _copy(reading, writing, wanted_bytes, progress)
            os.utime(writing, ns=(status.st_mtime_ns, status.st_mtime_ns))
            os.fsync(writing)
        finally:
            os.close(writing)
    return BackupEntry(size_bytes=wanted_bytes, sha256=sha256, mtime_ns=status.st_mtime_ns)


def entry_of(path: Path, progress: Progress = lambda _: None) -> BackupEntry:
    """Return the entry of a file that is in its place already, and make it durable. Raises Damaged, OSError."""
    reading = _opened(path)
    with os.fdopen(reading, "rb", buffering=0):
        os.fsync(reading)
        status = os.fstat(reading)
        sha256 = _copy(reading, None, status.st_size, progress)
    return BackupEntry(size_bytes=status.st_size, sha256=sha256, mtime_ns=status.st_mtime_ns)


def verified(path: Path, entry: BackupEntry, progress: Progress = lambda _: None) -> None:
    """Read a file of a backup. Raises Damaged unless it is what its entry says, OSError."""
    reading = _opened(path)
    with os.fdopen(reading, "rb", buffering=0):
        if os.fstat(reading).st_size != entry.size_bytes:
            raise Damaged(f"has {os.fstat(reading).st_size:,} bytes instead of {entry.size_bytes:,}")
        if _copy(reading, None, entry.size_bytes, progress) != entry.sha256:
            raise Damaged("has another SHA-256")


def restored(source: Path, entry: BackupEntry, target: Path, progress: Progress = lambda _: None) -> None:
    """Copy a file out of a backup. Raises Damaged unless it is what its entry says, OSError."""
    copy = copied(source, target, entry.size_bytes, progress)
    if copy.sha256 != entry.sha256:
        target.unlink()
        raise Damaged("has another SHA-256")


def linked(source: Path, target: Path) -> bool:
    """Link a file of an earlier backup; False where the file system has no links, or not so many."""
    make_private_directory(target.parent)
    try:
        target.unlink(missing_ok=True)
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True


def is_unchanged(path: Path, size_bytes: int, mtime_ns: int) -> bool:
    """Whether a regular file has this size and time."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime_ns) == (size_bytes, mtime_ns)


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Damaged("is missing") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Damaged("is no regular file")
    return descriptor


def _copy(reading: int, writing: int | None, size_bytes: int, progress: Progress) -> str:
    """Copy so many bytes past the page cache, which is the trainings', and return their SHA-256. Raises Damaged."""
    sha256, at = hashlib.sha256(), 0
    while at < size_bytes:
        block = os.pread(reading, min(READ_BYTES, size_bytes - at), at)
        if not block:
            raise Damaged(f"has {at:,} bytes instead of {size_bytes:,}")
        sha256.update(block)
        if writing is not None:
            _write(writing, block)
        at += len(block)
        progress(len(block))
    for descriptor in filter(None, (reading, writing)):
        if sys.platform == "linux":
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return sha256.hexdigest()


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]
