"""Pack a selection into an archive that is byte-identical wherever it is packed, and read one without unpacking it."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dashboard.paths import open_if, readable_files
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.selection import Item, Selection
from domain.text.formats import size


def pack(selection: Selection, target: Path, limit_bytes: int) -> Packed:
    """Write the archive to `target`, without files that are gone since they were selected, as programs make and delete
    them in a folder. Raises CodeRefused where it is too large or cannot be read."""
    check_size(selection, limit_bytes)
    with tarfile.open(target, "x", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as archive:
        vanished = sum(not _add(archive, item, selection.is_public) for item in selection.items)
    with target.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Packed(target, sha256, target.stat().st_size, selection.files - vanished)


MOST_FILES = 10_000
WAYS_OUT = "List data in .gitignore and link it with --link NAME=PATH, or run in place with --workdir PATH."
MOST_ENTRIES = 2 * MOST_FILES
"""Limit on files and empty folders together."""


@dataclass(frozen=True)
class Packed:
    """A packed archive with its hash and sizes."""

    path: Path
    sha256: str
    size_bytes: int
    files: int


def check_size(selection: Selection, limit_bytes: int) -> None:
    """Check the size of a selection. Raises CodeRefused where it is too large for a snapshot."""
    if selection.size_bytes <= limit_bytes and selection.files <= MOST_FILES:
        return
    totals = f"{selection.files} files, {size(selection.size_bytes)}"
    raise CodeRefused(
        "target",
        f"{selection.folder} is too large to be stored with the run: {totals}, of which {_largest(selection)}; "
        f"the limit is {MOST_FILES} files and {size(limit_bytes)}. {WAYS_OUT}",
    )


def too_many_files(folder: Path, most: int) -> CodeRefused:
    """Return the error for a folder with too many files to list."""
    return CodeRefused(
        "target",
        f"{folder} is too large to be stored with the run: it contains more than {most} files; "
        f"the limit is {MOST_FILES}. {WAYS_OUT}",
    )


def _add(archive: tarfile.TarFile, item: Item, only_public: bool) -> bool:
    """Add a file, folder or link to the archive; return False for a file that is gone, or was replaced by one that not
    everybody may read. Raises CodeRefused."""
    entry = tarfile.TarInfo(item.name)  # time 0, owner 0: nothing that differs between machines
    if item.kind == "folder":
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    elif item.kind == "link":
        entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, item.link
        archive.addfile(entry)
    else:
        entry.size, entry.mode = item.size_bytes, 0o755 if item.is_executable else 0o644
        try:
            if (file := open_if(readable_files(only_public), item.path)) is None:
                return False
            with file:
                archive.addfile(entry, file)
        except FileNotFoundError:
            return False
        except OSError as error:
            reason = error.strerror or "it changed while it was being read; launch again"
            raise CodeRefused("target", f"{item.path} cannot be stored: {reason}.") from error
    return True


def _largest(selection: Selection) -> str:
    """Return the three largest top-level files or folders, with sizes."""
    sizes: Counter[str] = Counter()
    for item in selection.items:
        top, slash, _ = item.name.partition("/")
        sizes[top + slash] += item.size_bytes
    largest = [f"{name} {size(size_bytes)}" for name, size_bytes in sizes.most_common(3)]
    return ", ".join(largest)


class Archive:
    """The contents of a snapshot; nothing in it is executed or written to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self) -> dict[str, int]:
        """Return every file's size in bytes by name; a link's is the length of its target. Raises CodeRefused."""
        with self.opened() as members:
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

    def check_members(self, limit_bytes: int) -> int:
        """Return the number of files. Raises CodeRefused unless a worker will unpack the archive."""
        entries = files = total = 0
        with self.opened() as members:
            for member in members:
                _check_member(member)
                entries += 1
                files += not member.isdir()
                total += member.size
                if files > MOST_FILES or entries > MOST_ENTRIES or total > limit_bytes:
                    raise CodeRefused("snapshot", "the archive is larger than a snapshot may be.")
        return files

    @contextmanager
    def opened(self) -> Iterator[tarfile.TarFile]:
        """Open the archive. Raises CodeRefused where it cannot be read."""
        try:
            with tarfile.open(self.path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
                yield archive
        except (tarfile.TarError, OSError, ValueError) as error:
            raise CodeRefused("snapshot", f"the archive cannot be read ({error}).") from error


def _check_member(member: tarfile.TarInfo) -> None:
    parts = PurePosixPath(member.name).parts
    is_inside = parts and not member.name.startswith("/") and ".." not in parts and "\0" not in member.name
    is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    if not is_inside or member.pax_headers or not (is_plain or member.isdir() or member.issym()):
        raise CodeRefused("snapshot", f"{member.name[:100]!r} is not allowed in a snapshot.")
