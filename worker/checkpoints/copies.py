"""Copies a checkpoint consistently, a folder as one tar file."""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from worker.checkpoints.folders import Folder
from worker.node.holes import data_after, hole_after
from worker.node.run_files import FileKey, file_key

MayContinue = Callable[[], bool]
HELD_OPEN = 256
"""Number of a folder's files opened before the copy begins, so that they can be deleted during it."""
_PIECE_BYTES = 16 * 1024 * 1024
_BLOCK, _RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE


def copy_file(path: Path, part: Path, key: FileKey, may_continue: MayContinue = lambda: True) -> bool:
    """Copy the file (as a reflink where the file system can); False if it was written to during that."""
    source = _open(path)
    try:
        if file_key(os.fstat(source)) != key:
            return False
        with part.open("xb", buffering=0) as copy:
            copied = copy_bytes(source, copy.fileno(), key.size_bytes, may_continue=may_continue)
        return copied == key.size_bytes and file_key(os.fstat(source)) == key
    finally:
        os.close(source)


def copy_folder(folder: Folder, part: Path, may_continue: MayContinue = lambda: True) -> bool:
    """Copy the folder as a tar file; False if anything in it changed since `folder` was read.

    Equal content gives equal bytes: sorted names, no times, no owners."""
    top = folder.place.name
    with ExitStack() as opened, part.open("xb", buffering=0) as copy:
        sources = {name: _open_in(opened, folder.path / name) for name in list(folder.members)[:HELD_OPEN]}
        if folder.look() != folder:
            return False
        at = 0
        for directory in _directories(folder):
            at = _write_header(copy.fileno(), at, f"{top}/{directory}".rstrip("/"), None)
        for name, key in folder.members.items():
            at = _write_header(copy.fileno(), at, f"{top}/{name}", key.size_bytes)
            if not _add(folder.path / name, sources.get(name), key, copy.fileno(), at, may_continue):
                return False
            at += -(-key.size_bytes // _BLOCK) * _BLOCK
        os.ftruncate(copy.fileno(), -(-(at + 2 * _BLOCK) // _RECORD) * _RECORD)  # zeros end the archive
        unchanged = all(file_key(os.fstat(source)) == folder.members[name] for name, source in sources.items())
        return unchanged and (len(sources) == len(folder.members) or folder.look() == folder)


def _open_in(opened: ExitStack, path: Path) -> int:
    source = _open(path)
    opened.callback(os.close, source)
    return source


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _directories(folder: Folder) -> list[str]:
    """Paths of the folder itself and of every folder in it, outer ones first."""
    return ["", *sorted({parent for name in folder.members for parent in _parents(name)})]


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: length + 1]) for length in range(len(parts))]


def _write_header(target: int, at: int, name: str, size: int | None) -> int:
    """Write the header of a file of this size, or of a directory (None); returns the offset after it."""
    header = tarfile.TarInfo(name)
    header.type, header.mode, header.size = tarfile.REGTYPE, 0o644, size or 0
    if size is None:
        header.type, header.mode = tarfile.DIRTYPE, 0o755
    data = header.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    while data:
        written = os.pwrite(target, data, at)
        data, at = data[written:], at + written
    return at


def _add(path: Path, descriptor: int | None, key: FileKey, target: int, at: int, may_continue: MayContinue) -> bool:
    source = _open(path) if descriptor is None else descriptor
    try:
        if file_key(os.fstat(source)) != key:
            return False
        copied = copy_bytes(source, target, key.size_bytes, at, may_continue=may_continue)
        return copied == key.size_bytes and file_key(os.fstat(source)) == key
    finally:
        if descriptor is None:
            os.close(source)


_NOT_BY_KERNEL = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}


def copy_bytes(
    source: int, target: int, size: int, offset: int = 0, since: int = 0, may_continue: MayContinue = lambda: True
) -> int:
    """Copy `size` bytes from offset `since` of the source to `offset` of the target; returns the number copied.

    Holes are not written: they stay holes of a target that is as new there. Raises OSError, also when it may not
    continue."""
    by_kernel, at = hasattr(os, "copy_file_range"), 0
    while at < size:
        if not may_continue():
            raise OSError(errno.ECANCELED, "the sending was ended")
        begin = min(size, data_after(source, since + at) - since)
        if begin > at:
            at = begin
            continue
        piece = max(0, min(_PIECE_BYTES, size - at, hole_after(source, since + at) - since - at))
        if by_kernel:
            try:
                copied = os.copy_file_range(source, target, piece, since + at, offset + at)
            except OSError as error:
                if error.errno not in _NOT_BY_KERNEL:
                    raise
                by_kernel = False
                continue
        else:
            copied = os.pwrite(target, os.pread(source, piece, since + at), offset + at)
        if not copied:
            break
        at += copied
    if os.fstat(target).st_size < offset + at:  # a hole at the end
        os.ftruncate(target, offset + at)
    return at
