"""Read a packed snapshot without unpacking it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from dashboard.snapshots.packing import MOST_FILES
from dashboard.snapshots.refusal import CodeRefused

MOST_ENTRIES = 2 * MOST_FILES
"""Limit on files and empty folders together."""


class Archive:
    """The contents of a snapshot; nothing in it is executed or written to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self) -> dict[str, int]:
        """Return every file's size in bytes by name; a link's is the length of its target. Raises CodeRefused."""
        with self._members() as members:
            sizes = ((m.name, len(m.linkname) if m.issym() else m.size) for m in members if not m.isdir())
            return dict(sizes)

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """Return the first `limit_bytes` of a file, or a link's target; None where there is no such file."""
        try:
            with tarfile.open(self.path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
                member = archive.getmember(name)
                if member.issym():
                    return os.fsencode(member.linkname)
                file = archive.extractfile(member) if member.isreg() else None
                return None if file is None else file.read(limit_bytes)
        except (KeyError, OSError, tarfile.TarError):
            return None

    def check(self, limit_bytes: int) -> int:
        """Return the number of files. Raises CodeRefused unless a worker will unpack the archive."""
        entries = files = total = 0
        with self._members() as members:
            for member in members:
                _check_member(member)
                entries += 1
                files += not member.isdir()
                total += member.size
                if files > MOST_FILES or entries > MOST_ENTRIES or total > limit_bytes:
                    raise CodeRefused("snapshot", "the archive is larger than a snapshot may be.")
        return files

    @contextmanager
    def _members(self) -> Iterator[Iterator[tarfile.TarInfo]]:
        try:
            with tarfile.open(self.path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
                yield iter(archive)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise CodeRefused("snapshot", f"the archive cannot be read ({error}).") from error


def _check_member(member: tarfile.TarInfo) -> None:
    parts = PurePosixPath(member.name).parts
    is_inside = parts and not member.name.startswith("/") and ".." not in parts and "\0" not in member.name
    is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    if not is_inside or member.pax_headers or not (is_plain or member.isdir() or member.issym()):
        raise CodeRefused("snapshot", f"{member.name[:100]!r} is not allowed in a snapshot.")
