"""Restores a backup: every file by its SHA-256 into a folder beside the data directory, which then gets its name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dashboard.backups import copying, manifest
from dashboard.backups.contents import KEYS
from dashboard.backups.copying import Damaged
from dashboard.backups.manifest import STORE, BackupManifest, BackupUnusable
from dashboard.private_files import make_private_directory, sync_folder
from dashboard.settings import Settings
from dashboard.storage import inventory
from dashboard.storage.inventory import Inventory
from db.engine import Store
from db.stored_files import counts
from domain.text import formats

FILES = "files/"


@dataclass(frozen=True)
class RestoredStore:
    """What a restored copy of a server has."""

    counts: Mapping[str, int]
    """Runs, points, files and checkpoints."""
    inventory: Inventory
    """What its store names and it does not have."""


class Restoration:
    """One backup that is being restored, until `finish` puts it in its place or `discard` deletes it again."""

    def __init__(self, backup: Path, settings: Settings) -> None:
        """Raises BackupUnusable where anything is in the data directory, or in a directory of files elsewhere."""
        self.backup, self.manifest = backup, manifest.read_manifest(backup)
        self._data, self._files = settings.data, settings.files
        self._new_data = _beside(settings.data)
        self._new_files = self._new_data / "files" if settings.files is None else _beside(settings.files)
        for place in filter(None, (self._data, self._files)):
            _require_empty(place)

    def copy(self) -> dict[str, str]:
        """Copy all files and verify each; return why one is damaged, by its name.

        Raises BackupUnusable where there is no room, or the store or a key is damaged; OSError."""
        self.discard()
        self._require_room()
        damaged = dict[str, str]()
        for place in (self._new_data, self._new_files, self._new_files / "incoming"):
            make_private_directory(place)
        for name, entry in self.manifest.files.items():
            try:
                copying.restored(self.backup / name, entry, self._target(name))
            except Damaged as damage:
                damaged[name] = str(damage)
        if broken := [name for name in (STORE, *KEYS) if name in damaged]:
            raise BackupUnusable(
                f"{self.backup / broken[0]} {damaged[broken[0]]}: this backup cannot be restored. Use another one: "
                "--from NAME."
            )
        return damaged

    def settle(self, now: float) -> RestoredStore:
        """Have the store list only what is there; nodes are asked for the rest. Raises StoreUnusable."""
        return settled(self._new_data / STORE, self._new_files, now)

    def finish(self) -> None:
        """Give the restored folders their names. Raises OSError, BackupUnusable where something is there by now."""
        for new, place in ((self._new_files, self._files), (self._new_data, self._data)):
            if place is not None:
                _require_empty(place)
                for folder, _, _ in os.walk(new):
                    sync_folder(Path(folder))
                _put_in_place(new, place)

    def discard(self) -> None:
        """Delete what was restored so far, also by an interrupted restoration before."""
        for place in (self._new_data, self._new_files):
            shutil.rmtree(place, ignore_errors=True)

    def _target(self, name: str) -> Path:
        return self._new_files / name.removeprefix(FILES) if name.startswith(FILES) else self._new_data / name

    def _require_room(self) -> None:
        place = self._new_data.parent
        make_private_directory(place)
        free_bytes, needed_bytes = shutil.disk_usage(place).free, self.manifest.size_bytes
        if needed_bytes > free_bytes:
            raise BackupUnusable(
                f"{place} has {formats.size(free_bytes)} free, and the backup needs "
                f"{formats.size(needed_bytes)}: free some space, or choose another --data."
            )


def settled(file: Path, files: Path, now: float) -> RestoredStore:
    """Open a restored store, upgrade it, and take back what it lists without its file. Raises StoreUnusable."""
    store = Store.open(file, may_be_new=False)
    try:
        found = inventory.take_inventory(store, files, now)
        inventory.collect(store, Inventory(checkpoints=found.checkpoints, shorter=found.shorter), now)
        return RestoredStore(counts(store), found)
    finally:
        store.close()


def drilled(backup: Path, now: float) -> tuple[BackupManifest, RestoredStore, dict[str, str]]:
    """Restore a backup into a temporary folder beside it, and delete that again.

    Returns its manifest, what the restored store has, and why files are damaged, by name. Its files are read and
    linked, its store is copied and opened. Raises BackupUnusable, StoreUnusable, OSError."""
    written = manifest.read_manifest(backup)
    place = backup.parent / f".drill-{backup.name}"
    shutil.rmtree(place, ignore_errors=True)
    make_private_directory(place / "files")
    try:
        damaged = _linked(backup, written, place)
        if STORE in damaged:
            raise BackupUnusable(f"{backup / STORE} {damaged[STORE]}: this backup cannot be restored.")
        return written, settled(place / STORE, place / "files", now), damaged
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _linked(backup: Path, written: BackupManifest, place: Path) -> dict[str, str]:
    """Verify each file of a backup and link it to `place`; the store, which is written to, is copied."""
    damaged = dict[str, str]()
    for name, entry in written.files.items():
        try:
            copying.verified(backup / name, entry)
            if name == STORE or not copying.linked(backup / name, place / name):
                copying.restored(backup / name, entry, place / name)
        except Damaged as damage:
            damaged[name] = str(damage)
    return damaged


INSIDE = ".restoring"


def _beside(place: Path) -> Path:
    """Return the folder that gets the name of `place` at the end; in it, where another disk is mounted there."""
    return place / INSIDE if place.is_mount() else place.with_name(f".{place.name}{INSIDE}")


def _put_in_place(new: Path, place: Path) -> None:
    if new.parent != place:
        new.rename(place)
        return sync_folder(place.parent)
    for path in sorted(new.iterdir(), key=lambda path: path.name == STORE):  # without its store no dashboard starts
        path.rename(place / path.name)
    new.rmdir()
    sync_folder(place)


def _require_empty(place: Path) -> None:
    if place.exists() and (
        not place.is_dir() or any(path.name not in (INSIDE, "lost+found") for path in place.iterdir())
    ):
        raise BackupUnusable(
            f"{place} is not empty: a backup is restored where nothing is. Stop what uses it and move it away "
            f"(mv {place} {place}.before), or choose another --data."
        )
