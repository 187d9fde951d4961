"""Compares the files on the server's disk with the rows of its store: files without a row, rows without their file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dashboard.storage.compressed import content_bytes
from db import stored_files
from db.engine import Store
from db.stored_files import FileKind, StoredFile

ORPHANED_AFTER_S = 24 * 3600.0
"""Age of a file from which on it counts as orphaned: a younger one may be about to get its row."""
FOLDERS = {FileKind.MIRRORED: "", FileKind.CHECKPOINT: "checkpoints/", FileKind.SNAPSHOT: "snapshots/"}
_NAMES = {
    FileKind.MIRRORED: re.compile(r"(\d+)(?:\.times|\.gz|\.gz\.part)?"),
    FileKind.CHECKPOINT: re.compile(r"(\d+)"),
    FileKind.SNAPSHOT: re.compile(r"([0-9a-f]{64})"),
}
_ARRIVING = re.compile(r"(?:adopted-)?(\d+)(?:\.part)?")


@dataclass(frozen=True)
class Inventory:
    """What does not belong together."""

    orphans: list[Path] = field(default_factory=list)
    """Files without a row."""
    orphaned_bytes: int = 0
    checkpoints: list[int] = field(default_factory=list)
    """The ids of complete checkpoints whose file is missing or has another size."""
    shorter: dict[int, int] = field(default_factory=dict)
    """The bytes that are left of logs and event files that should have more, by their ids."""
    snapshots: list[str] = field(default_factory=list)
    """The SHA-256 of code whose archive is missing."""

    @property
    def missing(self) -> int:
        """The number of rows without their file."""
        return len(self.checkpoints) + len(self.shorter) + len(self.snapshots)


def name_of(file: StoredFile) -> str:
    """Return the path of a file below the directory of files."""
    return FOLDERS[file.kind] + file.key


def take_inventory(store: Store, files: Path, now: float) -> Inventory:
    """Compare the directory of files with the store, which may be in use: what changes meanwhile is not counted."""
    orphans = [path for path in _unnamed(store, files) if _age_s(path, now) > ORPHANED_AFTER_S]
    lacking = {
        file: left for file in stored_files.stored_files(store) if (left := _left_of_broken(files, file)) is not None
    }
    still = set(stored_files.stored_files(store)) if lacking else set()
    gone = {file: size_bytes for file, size_bytes in lacking.items() if file in still}
    return Inventory(
        orphans=orphans,
        orphaned_bytes=sum(path.lstat().st_size for path in orphans),
        checkpoints=[int(file.key) for file in gone if file.kind is FileKind.CHECKPOINT],
        shorter={int(file.key): left for file, left in gone.items() if file.kind is FileKind.MIRRORED},
        snapshots=[file.key for file in gone if file.kind is FileKind.SNAPSHOT],
    )


def collect(store: Store, inventory: Inventory, now: float) -> None:
    """Delete orphaned files, and have missing ones sent again; nobody else may use the store meanwhile."""
    for path in inventory.orphans:
        path.unlink(missing_ok=True)
    stored_files.mark_missing(store, inventory.checkpoints, inventory.shorter, now)


def _unnamed(store: Store, files: Path) -> Iterator[Path]:
    """Yield files with a name that the server gives, for which the store has no row."""
    known = stored_files.known_keys(store)
    places = [(FOLDERS[kind], kind, pattern) for kind, pattern in _NAMES.items()]
    for folder, kind, pattern in (*places, ("incoming/", FileKind.CHECKPOINT, _ARRIVING)):
        for path in sorted((files / folder).glob("*")):
            match = pattern.fullmatch(path.name)
            if match and match[1] not in known[kind] and path.is_file() and not path.is_symlink():
                yield path


def _age_s(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _left_of_broken(files: Path, file: StoredFile) -> int | None:
    """Return how many bytes are left of a file that lacks some; None for one that is whole, or in a bucket."""
    if file.location is not None:
        return None
    path = files / name_of(file)
    if file.kind is FileKind.MIRRORED:
        size_bytes = content_bytes(path)
        return None if size_bytes >= file.size_bytes else size_bytes
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        return 0
    return None if size_bytes == file.size_bytes else size_bytes
