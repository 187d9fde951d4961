"""The manifest of a backup: its files, by size and SHA-256. It is written last: a folder without one is no backup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dashboard.private_files import sync_folder, write_private

MANIFEST = "manifest.json"
STORE = "rankzero.db"
BACKUP_NAME = re.compile(r"\d{8}-\d{6}(?:-\d+)?")
_SHA256 = r"^[0-9a-f]{64}$"


class BackupUnusable(Exception):
    """A backup cannot be taken, read or restored; the sentence says why and what to do."""


def _checked_name(name: str) -> str:
    """Return the name of a file below a backup's folder. Raises ValueError for one that leads elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or "\0" in name or name == MANIFEST:
        raise ValueError(f"{name!r} is no file of a backup")
    return name


FileName = Annotated[str, AfterValidator(_checked_name)]


class BackupEntry(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(frozen=True)

    size_bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=_SHA256)]
    mtime_ns: int
    """Of the server's file when it was copied: while that and the size are the same, it is the same file."""


class BucketObject(BaseModel):
    """A checkpoint in a bucket, which stays there."""

    model_config = ConfigDict(frozen=True)

    location: str
    size_bytes: int
    sha256: str


class BackupManifest(BaseModel):
    """What one backup consists of."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    rankzero: str
    """The version that wrote it."""
    made_at: float
    """Seconds since the epoch, by the server's clock."""
    store: str
    """The identity of the store that was copied."""
    files: dict[FileName, BackupEntry]
    missing: dict[str, str] = {}
    """Why a file that the store names could not be copied, by its name; an earlier copy of it may be there."""
    objects: list[BucketObject] = []

    @property
    def size_bytes(self) -> int:
        """The bytes of all its files."""
        return sum(entry.size_bytes for entry in self.files.values())


def read_manifest(backup: Path) -> BackupManifest:
    """Read the manifest of a backup's folder. Raises BackupUnusable."""
    path = backup / MANIFEST
    try:
        return BackupManifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise BackupUnusable(f"{backup} is no whole backup: it has no {MANIFEST}.") from None
    except OSError as error:
        raise BackupUnusable(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        first = error.errors()[0]["msg"]
        raise BackupUnusable(
            f"{path} is damaged, or of a newer Rankzero ({first}). Use another backup: --from NAME."
        ) from None


def write_manifest(backup: Path, manifest: BackupManifest) -> None:
    """Make a folder a backup; all its files are durable by then."""
    write_private(backup / MANIFEST, manifest.model_dump_json())
    sync_folder(backup)


def whole_backups(folder: Path) -> list[Path]:
    """Return the backups in a folder, the oldest first; what has no manifest is none."""
    return [path for path in _named(folder) if (path / MANIFEST).is_file()]


def unfinished_backups(folder: Path) -> list[Path]:
    """Return the folders with a backup's name that are no backup, as a deletion leaves them that was interrupted."""
    return [path for path in _named(folder) if not (path / MANIFEST).is_file()]


def new_name(folder: Path, made_at: float) -> str:
    """Return the name for a backup made at that time, in seconds since the epoch."""
    moment = datetime.fromtimestamp(made_at, UTC).strftime("%Y%m%d-%H%M%S")
    taken = {path.name for path in _named(folder)}
    return next(name for name in _candidates(moment) if name not in taken)


def chosen_backup(folder: Path, name: str | None) -> Path:
    """Return a backup by its name, by default the newest. Raises BackupUnusable."""
    backups = whole_backups(folder) if folder.is_dir() else []
    if not backups:
        raise BackupUnusable(f"There is no whole backup in {folder}; `rankzero backup DIR` writes them.")
    if name is None:
        return backups[-1]
    if chosen := [backup for backup in backups if backup.name == name]:
        return chosen[0]
    raise BackupUnusable(f"There is no backup {name!r} in {folder}; it has {', '.join(one.name for one in backups)}.")


def _named(folder: Path) -> list[Path]:
    named = [path for path in folder.iterdir() if BACKUP_NAME.fullmatch(path.name) and not path.is_symlink()]
    return sorted((path for path in named if path.is_dir()), key=_order)


def _order(path: Path) -> tuple[str, int]:
    date, time, *number = path.name.split("-")
    return f"{date}-{time}", int(number[0]) if number else 1


def _candidates(moment: str) -> Iterator[str]:
    yield moment
    number = 2
    while True:
        yield f"{moment}-{number}"
        number += 1
