"""Takes a backup beside the working server: into a folder that is one only when its manifest is written, at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from dashboard.backups import copying, manifest
from dashboard.backups.contents import Member, members, objects
from dashboard.backups.copying import Damaged
from dashboard.backups.manifest import STORE, BackupEntry, BackupManifest, BackupUnusable, BucketObject
from dashboard.private_files import hold_lock, make_private_directory, sync_folder
from dashboard.settings import Settings
from db.engine import Store
from db.stored_files import lineage
from db.trouble import StoreUnusable

PARTIAL = "unfinished"
"""The backup that is being taken; the next one goes on with what an interrupted one has left there."""
CopyStore = Callable[[Path], object]
"""Writes a consistent copy of the store to a new file."""


@dataclass(frozen=True)
class TakenBackup:
    """A backup that is whole."""

    path: Path
    manifest: BackupManifest
    copied_bytes: int
    """Bytes that were read; all other files are those of the backup before."""


def take_backup(settings: Settings, folder: Path, copy_store: CopyStore, now: float) -> TakenBackup:
    """Add a backup to the folder, made at `now` (seconds since the epoch).

    Raises BackupUnusable, OSError: what was copied stays for the next try."""
    _check_place(settings, folder)
    make_private_directory(folder)
    with locked(folder):
        return _Taking(settings, folder, now).take(copy_store)


def keep_newest(folder: Path, keep: int) -> list[str]:
    """Delete the oldest backups but so many, and what earlier deletions left; return the names of those deleted."""
    with locked(folder):
        for left in manifest.unfinished_backups(folder):
            shutil.rmtree(left)
        oldest = manifest.whole_backups(folder)[:-keep]
        for backup in oldest:
            (backup / manifest.MANIFEST).unlink()  # from now on it is none, however far its deletion gets
            sync_folder(backup)
            shutil.rmtree(backup)
    return [backup.name for backup in oldest]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of backups. Raises BackupUnusable where another program holds it."""
    try:
        with hold_lock(folder / ".lock"):
            yield
    except BlockingIOError:
        raise BackupUnusable(f"Another program writes backups to {folder}: wait for its end.") from None


def _check_place(settings: Settings, folder: Path) -> None:
    """Raise BackupUnusable for a folder that would be lost with the server's own."""
    for own in (settings.data, settings.files_directory):
        if folder.resolve().is_relative_to(own.resolve()):
            raise BackupUnusable(
                f"{folder} is in {own} and would be lost with it: choose a folder elsewhere, best on another disk."
            )
    require_files(settings)


def require_files(settings: Settings) -> None:
    """Raise BackupUnusable where the directory of files is not there, or is what a disk is to be mounted on."""
    if not (settings.files_directory / "incoming").is_dir():  # every dashboard makes it when it starts
        raise BackupUnusable(
            f"There is no directory of files at {settings.files_directory}: set RANKZERO_FILES and --data as for the "
            "dashboard, and mount the disk if it is not there."
        )


class _Taking:
    """One backup on its way."""

    def __init__(self, settings: Settings, folder: Path, now: float) -> None:
        self._settings, self._folder, self._now = settings, folder, now
        self._partial = folder / PARTIAL
        self._earlier = next(reversed(manifest.whole_backups(folder)), None)
        self._before = manifest.read_manifest(self._earlier) if self._earlier else None
        self._copied_bytes = 0

    def take(self, copy_store: CopyStore) -> TakenBackup:
        make_private_directory(self._partial)
        (self._partial / manifest.MANIFEST).unlink(missing_ok=True)
        store, wanted, in_buckets = self._copied_store(copy_store)
        entries, missing = {STORE: copying.entry_of(self._partial / STORE, self._count)}, dict[str, str]()
        for member in wanted:
            try:
                name, placed = self._placed_as_it_is(member)
                entries[name] = placed
            except Damaged as damage:
                (self._partial / member.name).unlink(missing_ok=True)
                if member.is_needed:
                    missing[member.name] = str(damage)
                if (entry := self._kept(member)) is not None:
                    entries[member.name] = entry
        self._tidy(set(entries))
        written = BackupManifest(
            rankzero=metadata.version("rankzero"), made_at=self._now, store=store, files=entries, missing=missing,
            objects=in_buckets,
        )  # fmt: skip
        manifest.write_manifest(self._partial, written)
        path = self._partial.rename(self._folder / manifest.new_name(self._folder, self._now))
        sync_folder(self._folder)
        return TakenBackup(path, written, self._copied_bytes)

    def _copied_store(self, copy_store: CopyStore) -> tuple[str, list[Member], list[BucketObject]]:
        """Copy the store; return the identity of the original, and all that the copy names."""
        copy = self._partial / STORE
        for path in (copy, *self._partial.glob(f"{STORE}-*")):
            path.unlink(missing_ok=True)
        copy_store(copy)
        try:
            store = Store.open(copy, may_be_new=False)
        except StoreUnusable as error:
            raise BackupUnusable(str(error).replace(str(copy), str(self._settings.data / STORE))) from None
        try:
            *originals, own = lineage(store)
            self._check_lineage(originals)
            return originals[-1] if originals else own, list(members(store, self._settings)), objects(store)
        finally:
            store.close()

    def _check_lineage(self, originals: list[str]) -> None:
        """Raise BackupUnusable where the folder has backups of another server, which `--keep` would delete."""
        if self._before is not None and self._before.store not in originals:
            raise BackupUnusable(f"{self._folder} has backups of another server: choose a folder of its own.")

    def _placed_as_it_is(self, member: Member) -> tuple[str, BackupEntry]:
        """Place a file, or its compressed form where it has that by now. Raises Damaged."""
        try:
            return member.name, self._placed(member)
        except Damaged:
            other = member.compressed
            if other is None or member.source.exists() or not other.source.exists():
                raise
            return other.name, self._placed(other)

    def _placed(self, member: Member) -> BackupEntry:
        """Link the file of the backup before, or keep what is there, or copy. Raises Damaged."""
        target = self._partial / member.name
        try:
            status = member.source.lstat()
        except FileNotFoundError:
            raise Damaged("is missing") from None
        size_bytes = status.st_size if member.size_bytes is None else member.size_bytes
        entry = self._linked(member, target, size_bytes, status.st_mtime_ns)
        if entry is None and copying.is_unchanged(target, size_bytes, status.st_mtime_ns):
            entry = copying.entry_of(target, self._count)
        if entry is None or member.sha256 not in (None, entry.sha256):
            entry = copying.copied(member.source, target, size_bytes, self._count)
        if member.sha256 not in (None, entry.sha256):
            raise Damaged("has another SHA-256 than when it arrived")
        return entry

    def _linked(self, member: Member, target: Path, size_bytes: int, mtime_ns: int) -> BackupEntry | None:
        """Link the earlier backup's copy of the very same file; None if there is none."""
        entry = self._before.files.get(member.name) if self._before else None
        if self._earlier is None or entry is None or (entry.size_bytes, entry.mtime_ns) != (size_bytes, mtime_ns):
            return None
        source = self._earlier / member.name
        if member.sha256 not in (None, entry.sha256) or not copying.is_unchanged(source, size_bytes, mtime_ns):
            return None
        return entry if copying.linked(source, target) else None

    def _kept(self, member: Member) -> BackupEntry | None:
        """Keep the earlier backup's copy of a file that never changes and that the server has lost; None if there is
        none. So `--keep` never deletes the last one."""
        entry = self._before.files.get(member.name) if self._before else None
        if self._earlier is None or entry is None or member.sha256 != entry.sha256:
            return None
        source, target = self._earlier / member.name, self._partial / member.name
        if not copying.is_unchanged(source, entry.size_bytes, entry.mtime_ns):
            return None
        return entry if copying.linked(source, target) else copying.copied(source, target, None, self._count)

    def _tidy(self, names: set[str]) -> None:
        """Delete what an interrupted backup left and this one does not have; make the folders durable."""
        for folder, _, files in os.walk(self._partial, topdown=False):
            for name in files:
                path = Path(folder, name)
                if str(path.relative_to(self._partial)) not in names:
                    path.unlink()
            sync_folder(Path(folder))

    def _count(self, size_bytes: int) -> None:
        self._copied_bytes += size_bytes
