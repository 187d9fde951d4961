"""Finds checkpoints that are complete, and takes a consistent copy of each before it changes or goes."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.checkpoint_formats import Completeness, completeness, step_of
from worker.walk import (
    FileKey,
    Listing,
    data_directory,
    entry_key,
    file_key,
    is_checkpoint_name,
    name_on_server,
    walk_files,
)

log = logging.getLogger(__name__)

QUIET_S = 5.0
"""A file without an end mark of its own counts as complete when nothing was written to it for so long."""
SETTLE_S = 0.05
"""File times tick every few milliseconds: only a write after this long is sure to change them."""
RESERVE_BYTES = 256 * 1024 * 1024
"""So much stays free on the node for the training itself."""
SCAN_EVERY_S = 1.0


@dataclass(frozen=True)
class Snapshot:
    """A complete copy of a checkpoint, waiting in the outbox until the server has it."""

    name: str
    """Relative to the attempt's directory: its name for people."""
    path: Path
    """The copy."""
    step: int | None
    size_bytes: int
    sha256: str
    written_at: float
    key: FileKey
    """(inode, size, mtime_ns) of the file it was taken from."""


class CheckpointWatch:
    """Watches the places an attempt writes to, and keeps what it took until `done`."""

    def __init__(
        self,
        roots: Sequence[Path],
        outbox: Path,
        *,
        quiet_s: float = QUIET_S,
        ignore: Listing | None = None,
        reserve_bytes: int = RESERVE_BYTES,
        free_bytes: Callable[[Path], int] | None = None,
    ) -> None:
        self._attempt_dir = outbox.parent.resolve()
        self._outbox = self._attempt_dir / outbox.name
        self._roots = [root.resolve() for root in roots]
        self._quiet_s, self._reserve_bytes = quiet_s, reserve_bytes
        self._free_bytes = free_bytes or (lambda path: shutil.disk_usage(path).free)
        self._ignored: dict[str, FileKey] = {path: _key(key) for path, key in (ignore or {}).items()}
        self.notice: str | None = None
        """One sentence while a checkpoint cannot be taken."""
        self._looks: dict[str, tuple[FileKey, float]] = {}
        self._scan_at = float("-inf")
        self._lock = threading.Lock()  # copies are taken in one thread and sent in another
        self._outbox.mkdir(parents=True, exist_ok=True)
        self._taken, self._pending = self._read_notes()
        self._sweep()

    def step(self, now: float, *, final: bool = False) -> list[Snapshot]:
        """Takes what is complete; returns what is new. `now` is monotonic; copying may take seconds.

        `final`: nothing writes any more, so nothing is waited for.
        """
        if now < self._scan_at and not final:
            return []
        began = time.monotonic()
        self.notice = None
        candidates = list(self._candidates())
        taken = [snapshot for found in candidates if (snapshot := self._take(*found, now, final))]
        self._looks = {
            str(path): self._looks[str(path)] for path, _, _ in candidates if str(path) in self._looks
        }
        # A huge working directory is walked less often: at most a twentieth of the time.
        self._scan_at = now + max(SCAN_EVERY_S, 20 * (time.monotonic() - began)) if not taken else now
        return taken

    def pending(self) -> list[Snapshot]:
        """Everything taken and not acknowledged, the oldest first; survives a restart of the worker."""
        return sorted(self._pending, key=lambda snapshot: snapshot.written_at)

    def done(self, snapshot: Snapshot) -> None:
        """The server has it (or has renamed the copy away): the copy goes."""
        with self._lock:
            self._pending = [kept for kept in self._pending if kept.path != snapshot.path]
            self._write_notes()
        snapshot.path.unlink(missing_ok=True)

    def forget(self, snapshot: Snapshot) -> None:
        """The copy turned out bad: it goes, and the file is taken again if it is still there."""
        if self._taken.get(snapshot.name) == snapshot.key:
            del self._taken[snapshot.name]
        self.done(snapshot)

    def incomplete(self) -> list[str]:
        """Names of checkpoints that are there and were never complete: what a kill in mid-save leaves."""
        found = ((name, completeness(path)) for path, name, _ in self._candidates())
        return sorted(name for name, whole in found if whole is Completeness.INCOMPLETE)

    # -- looking -------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[tuple[Path, str, FileKey]]:
        """Checkpoint files that are neither older than the attempt nor taken already."""
        prune = data_directory(self._attempt_dir)
        for root in self._roots:
            for entry in walk_files(root, is_checkpoint_name, prune):
                key, path = entry_key(entry), Path(entry.path)
                if key is None or self._ignored.get(entry.path) == key:
                    continue
                name = name_on_server(path, self._attempt_dir, root)
                if self._taken.get(name) != key:
                    yield path, name, key

    def _take(self, path: Path, name: str, key: FileKey, now: float, final: bool) -> Snapshot | None:
        if not final and not self._has_settled(path, key, now):
            return None
        if not self._is_whole(path, now, final):
            return None
        if self._free_bytes(self._outbox) < key[1] + self._reserve_bytes:
            self.notice = (
                f"Too little disk space to take checkpoint {name}: it needs {key[1]} bytes and "
                f"{self._reserve_bytes} more must stay free. Free some space; it is tried again."
            )
            return None
        return self._snapshot(path, name, key)

    def _has_settled(self, path: Path, key: FileKey, now: float) -> bool:
        """A key seen before, or old enough by the clock, that any further write would change it."""
        seen_key, since = self._looks.get(str(path), (None, now))
        if seen_key != key:
            self._looks[str(path)] = (key, now)
            return abs(time.time() - key[2] / 1e9) > SETTLE_S
        return now - since >= SETTLE_S

    def _is_whole(self, path: Path, now: float, final: bool) -> bool:
        whole = completeness(path)
        if whole is Completeness.UNKNOWN:
            return final or now - self._looks[str(path)][1] >= self._quiet_s
        return whole is Completeness.COMPLETE

    # -- taking --------------------------------------------------------------------------------

    def _snapshot(self, path: Path, name: str, key: FileKey) -> Snapshot | None:
        """A copy of exactly the file that was looked at, or nothing."""
        part = self._outbox / f"{secrets.token_hex(8)}.part"
        try:
            if not _copy_unchanged(path, part, key):
                part.unlink(missing_ok=True)
                return None
            with part.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            copy = part.rename(part.with_suffix(""))
        except OSError as error:
            part.unlink(missing_ok=True)
            if path.exists():
                self.notice = f"Checkpoint {name} could not be copied: {error.strerror}. It is tried again."
            return None
        snapshot = Snapshot(name, copy, step_of(name), key[1], sha256, key[2] / 1e9, key)
        with self._lock:
            self._taken[name] = key
            self._pending.append(snapshot)
            self._write_notes()
        log.info("checkpoint %s taken (%d bytes, sha256 %s)", name, key[1], sha256[:12])
        return snapshot

    def _sweep(self) -> None:
        """Removes copies that a killed worker left unfinished or unknown."""
        kept = {snapshot.path for snapshot in self._pending} | {self._notes}
        for path in self._outbox.iterdir():
            if path not in kept and path.is_file():
                path.unlink(missing_ok=True)

    # -- what a restarted worker must know -----------------------------------------------------

    @property
    def _notes(self) -> Path:
        return self._outbox / "taken.json"

    def _read_notes(self) -> tuple[dict[str, FileKey], list[Snapshot]]:
        try:
            notes = json.loads(self._notes.read_text())
            taken = {name: _key(key) for name, key in notes["taken"].items()}
            pending = [
                Snapshot(**{**fields, "path": self._outbox / fields["path"], "key": _key(fields["key"])})
                for fields in notes["pending"]
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, []
        whole = [one for one in pending if one.path.is_file() and one.path.stat().st_size == one.size_bytes]
        for lost in (one for one in pending if one not in whole and taken.get(one.name) == one.key):
            del taken[lost.name]
        return taken, whole

    def _write_notes(self) -> None:
        notes = {
            "taken": self._taken,
            "pending": [{**vars(snapshot), "path": snapshot.path.name} for snapshot in self._pending],
        }
        fresh = self._notes.with_suffix(".tmp")
        try:
            with fresh.open("w") as file:
                json.dump(notes, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._notes)
        except OSError as error:  # a full disk: what is only in memory is taken again after a restart
            self.notice = f"The list of checkpoints on their way could not be written: {error.strerror}."


def _copy_unchanged(path: Path, part: Path, key: FileKey) -> bool:
    """Copies the file (as a reflink where the file system can); False when it was written to meanwhile."""
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if file_key(os.fstat(source)) != key:
            return False
        with part.open("xb", buffering=0) as copy:
            _copy_bytes(source, copy.fileno(), key[1])
            same_size = os.fstat(copy.fileno()).st_size == key[1]
        return same_size and file_key(os.fstat(source)) == key
    finally:
        os.close(source)


_PIECE_BYTES = 16 * 1024 * 1024
_NOT_BY_KERNEL = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}


def _copy_bytes(source: int, target: int, size: int) -> None:
    by_kernel, at = hasattr(os, "copy_file_range"), 0
    while at < size:
        piece = min(_PIECE_BYTES, size - at)
        if by_kernel:
            try:
                copied = os.copy_file_range(source, target, piece, at, at)
            except OSError as error:
                if error.errno not in _NOT_BY_KERNEL:
                    raise
                by_kernel = False
                continue
        else:
            copied = os.pwrite(target, os.pread(source, piece, at), at)
        if not copied:
            return
        at += copied


def _key(key: Sequence[int]) -> FileKey:
    inode, size, mtime_ns = key
    return inode, size, mtime_ns
