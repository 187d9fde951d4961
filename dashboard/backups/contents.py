"""Lists the files of a server that belong to its backup: what the copied store names, the keys, and wheels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dashboard.backups.manifest import BucketObject
from dashboard.security.keys.token_files import metrics_token_path
from dashboard.settings import Settings
from dashboard.storage.compressed import compressed_path
from dashboard.storage.inventory import name_of
from db.engine import Store
from db.stored_files import FileKind, StoredFile, stored_files

KEYS = ("token", "join-token", "metrics-token", "secret-key")


@dataclass(frozen=True)
class Member:
    """A file to be backed up."""

    name: str
    """Its name in the backup, which is that in a data directory."""
    source: Path
    size_bytes: int | None = None
    """None: as large as it is."""
    sha256: str | None = None
    """What the store says about its content."""
    is_needed: bool = True
    """Whether the store names it: one that is missing is told of."""
    compressed: Member | None = None
    """Its other form, which it may get at any moment."""


def members(store: Store, settings: Settings) -> Iterator[Member]:
    """Yield every file that belongs to this copy of the store, the keys first."""
    yield from _keys(settings)
    yield from _wheels(settings.data / "wheels")
    for file in stored_files(store):
        if file.location is None:
            yield from _of_store(file, settings.files_directory)


def objects(store: Store) -> list[BucketObject]:
    """Return the checkpoints of this copy of the store that are in a bucket."""
    return [
        BucketObject(location=file.location, size_bytes=file.size_bytes, sha256=file.sha256 or "")
        for file in stored_files(store)
        if file.location is not None
    ]


def _of_store(file: StoredFile, files: Path) -> Iterator[Member]:
    name = name_of(file)
    is_mirrored = file.kind is FileKind.MIRRORED
    compressed = Member(f"files/{name}.gz", compressed_path(files / name)) if is_mirrored else None
    yield Member(f"files/{name}", files / name, file.size_bytes, file.sha256, compressed=compressed)
    if is_mirrored:
        yield Member(f"files/{name}.times", files / f"{name}.times", is_needed=False)


def _keys(settings: Settings) -> Iterator[Member]:
    """Yield the keys wherever the settings have them, under the names of a data directory."""
    data = settings.data
    places = (
        data / "token",
        settings.join_token_file or data / "join-token",
        metrics_token_path(data),
        settings.secret_key_file or data / "secret-key",
    )
    for name, path in zip(KEYS, places, strict=True):
        yield Member(name, path.resolve(), is_needed=False)  # secrets of containers are links


def _wheels(folder: Path) -> Iterator[Member]:
    """Yield what a person put there, and the locks of runs; what nodes brought they bring again."""
    for path in sorted([*folder.glob("*"), *(folder / "locks").glob("*/*")]):
        if path.is_file() and not path.is_symlink():
            yield Member(f"wheels/{path.relative_to(folder)}", path, is_needed=False)
