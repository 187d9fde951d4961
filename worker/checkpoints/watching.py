"""Finds checkpoints that are complete, and takes a consistent copy of each before it changes or goes."""

from __future__ import annotations

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

from worker.checkpoints.checksums import WRONG_SUM, agrees_with_its_sums
from worker.checkpoints.copies import copy_file, copy_folder
from worker.checkpoints.findings import Unfinished
from worker.checkpoints.folders import Folder, find_checkpoints, may_grow_into_folder
from worker.checkpoints.formats import Completeness, completeness, step_of, what_is_missing
from worker.checkpoints.names import prefix_of
from worker.node.hard_links import leads_outside
from worker.node.run_files import FileKey, Listing, data_directory, entry_key, name_on_server

log = logging.getLogger(__name__)

QUIET_S = 5.0
"""A file or folder without an end mark counts as complete when nothing was written to it for so long."""
MARKED_QUIET_S = 1.0
"""Behind a folder's end mark, for what scripts like to put beside it."""
SETTLE_S = 0.05
"""File times tick every few milliseconds: only a write after this long is sure to change them."""
RESERVE_BYTES = 256 * 1024 * 1024
"""So much stays free on the node for the training itself."""
SCAN_EVERY_S = 1.0


@dataclass(frozen=True)
class CheckpointCopy:
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
    """(inode, size, mtime_ns) of the file it was taken from; of a folder see `Folder.key`."""
    prefix: str | None = None
    """What its tensors' names begin with without need."""


@dataclass(frozen=True)
class _Candidate:
    """A file, or a folder that travels as one tar file, that may be a complete checkpoint."""

    path: Path
    name: str
    """Its name on the server."""
    key: FileKey
    folder: Folder | None = None

    def completeness(self) -> Completeness:
        return self.folder.completeness() if self.folder else completeness(self.path)

    def what_is_missing(self) -> str:
        return (self.folder.what_is_missing() or "") if self.folder else what_is_missing(self.path)

    def quiet_s(self, unmarked_s: float) -> float:
        """How long nothing may have been written to it before it is looked into."""
        if self.folder is None:
            return min(unmarked_s, MARKED_QUIET_S) if may_grow_into_folder(self.path) else 0.0
        return min(unmarked_s, MARKED_QUIET_S) if self.folder.has_end_mark else unmarked_s

    def leads_outside(self, roots: Sequence[Path]) -> bool:
        """Whether a file of it is a hard link to one that lies elsewhere."""
        files = [self.path / name for name in self.folder.members] if self.folder else [self.path]
        try:
            return any(leads_outside(file, roots) for file in files)
        except OSError:  # it has just gone
            return False

    def copy_to(self, part: Path) -> bool:
        """False when it changed meanwhile."""
        return copy_folder(self.folder, part) if self.folder else copy_file(self.path, part, self.key)


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
        is_mapped: Callable[[Path], bool] = lambda path: False,
    ) -> None:
        """`is_mapped`: whether a process of the attempt can write to this file or folder through an open mmap."""
        self._attempt_dir = outbox.parent.resolve()
        self._outbox = self._attempt_dir / outbox.name
        self._roots = [root.resolve() for root in roots]
        self._quiet_s, self._reserve_bytes = quiet_s, reserve_bytes
        self._free_bytes = free_bytes or (lambda path: shutil.disk_usage(path).free)
        self._is_mapped = is_mapped
        self._differing: dict[str, FileKey] = {}
        """What was copied, and did not agree with its own checksums."""
        self._ignored: dict[str, FileKey] = {path: _key(key) for path, key in (ignore or {}).items()}
        self.notice: str | None = None
        """One sentence while a checkpoint cannot be taken."""
        self._looks: dict[str, tuple[FileKey, float]] = {}
        self._scan_at = float("-inf")
        self._lock = threading.Lock()  # copies are taken in one thread and sent in another
        self._outbox.mkdir(parents=True, exist_ok=True)
        self._taken, self._pending = self._read_notes()
        self._sweep()

    def step(self, now: float, *, final: bool = False) -> list[CheckpointCopy]:
        """Takes what is complete; returns what is new. `now` is monotonic; copying may take seconds.

        `final`: nothing writes any more, so nothing is waited for.
        """
        if now < self._scan_at and not final:
            return []
        began = time.monotonic()
        self.notice = None
        candidates = list(self._candidates())
        taken = [snapshot for found in candidates if (snapshot := self._take(found, now, final))]
        self._looks = {found.name: look for found in candidates if (look := self._looks.get(found.name))}
        # A huge working directory is walked less often: at most a twentieth of the time.
        self._scan_at = now + max(SCAN_EVERY_S, 20 * (time.monotonic() - began)) if not taken else now
        return taken

    def pending(self) -> list[CheckpointCopy]:
        """Everything taken and not acknowledged, the oldest first; survives a restart of the worker."""
        return sorted(self._pending, key=lambda snapshot: snapshot.written_at)

    def done(self, snapshot: CheckpointCopy) -> None:
        """The server has it (or has renamed the copy away): the copy goes."""
        with self._lock:
            self._pending = [kept for kept in self._pending if kept.path != snapshot.path]
            self._write_notes()
        snapshot.path.unlink(missing_ok=True)

    def forget(self, snapshot: CheckpointCopy) -> None:
        """The copy turned out bad: it goes, and the file is taken again if it is still there."""
        if self._taken.get(snapshot.name) == snapshot.key:
            del self._taken[snapshot.name]
        self.done(snapshot)

    def incomplete(self) -> list[Unfinished]:
        """At the end, checkpoints that are there and were not taken: what a kill in mid-save leaves, and what
        could not be copied. See `incomplete_findings`."""
        told = [self._unfinished(each, each.completeness()) for each in self._candidates()]
        return sorted((each for each in told if each), key=lambda unfinished: unfinished.name)

    def _unfinished(self, found: _Candidate, whole: Completeness) -> Unfinished | None:
        if whole is Completeness.FOREIGN:
            return None
        had_whole = found.name in self._taken
        if found.leads_outside(self._roots):
            return Unfinished(found.name, found.key[1], "", had_whole, is_linked=True)
        if self._differing.get(found.name) == found.key:
            return Unfinished(found.name, found.key[1], WRONG_SUM, had_whole)
        if whole is Completeness.INCOMPLETE:
            return Unfinished(found.name, found.key[1], found.what_is_missing(), had_whole)
        has_room = self._free_bytes(self._outbox) >= found.key[1] + self._reserve_bytes
        why = "it could not be copied" if has_room else "the node's disk has no room for a copy of it"
        return Unfinished(found.name, found.key[1], why, had_whole, is_whole=True)

    # -- looking -------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[_Candidate]:
        """Checkpoints that are neither older than the attempt nor taken already."""
        prune = data_directory(self._attempt_dir)
        for root in self._roots:
            for found in find_checkpoints(root, prune):
                candidate = self._candidate(found, root)
                if candidate and self._taken.get(candidate.name) != candidate.key:
                    yield candidate

    def _candidate(self, found: Folder | os.DirEntry[str], root: Path) -> _Candidate | None:
        path = Path(found.path)
        name = name_on_server(path, self._attempt_dir, root)
        if isinstance(found, Folder):
            return _Candidate(path, f"{name}.tar", found.key, found) if found.is_new(self._ignored) else None
        key = entry_key(found)
        if key is None or self._ignored.get(found.path) == key:
            return None
        return _Candidate(path, name, key)

    def _take(self, found: _Candidate, now: float, final: bool) -> CheckpointCopy | None:
        if not final and not self._has_settled(found, now):
            return None
        if not self._is_whole(found, now, final) or found.leads_outside(self._roots):
            return None
        if not final and self._is_mapped(found.path):
            return None
        if self._free_bytes(self._outbox) < found.key[1] + self._reserve_bytes:
            self.notice = (
                f"Too little disk space to take checkpoint {found.name}: it needs {found.key[1]} bytes and "
                f"{self._reserve_bytes} more must stay free. Free some space; it is tried again."
            )
            return None
        return self._snapshot(found)

    def _has_settled(self, found: _Candidate, now: float) -> bool:
        """Not written to for long enough. A file's own time may say so, too; copied folders keep old times."""
        needed_s = max(SETTLE_S, found.quiet_s(self._quiet_s))
        seen_key, since = self._looks.get(found.name, (None, now))
        if seen_key != found.key:
            self._looks[found.name] = (found.key, now)
            since = now
        is_old = found.folder is None and abs(time.time() - found.key[2] / 1e9) > needed_s
        return is_old or now - since >= needed_s

    def _is_whole(self, found: _Candidate, now: float, final: bool) -> bool:
        whole = found.completeness()
        if whole is Completeness.UNKNOWN:
            return final or now - self._looks[found.name][1] >= self._quiet_s
        return whole is Completeness.COMPLETE

    # -- taking --------------------------------------------------------------------------------

    def _snapshot(self, found: _Candidate) -> CheckpointCopy | None:
        """A copy of exactly what was looked at, or nothing."""
        part = self._outbox / f"{secrets.token_hex(8)}.part"
        try:
            if not found.copy_to(part) or not self._agrees(found, part):
                part.unlink(missing_ok=True)
                return None
            with part.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                size_bytes = os.fstat(file.fileno()).st_size
            copy = part.rename(part.with_suffix(""))
        except OSError as error:
            part.unlink(missing_ok=True)
            if not isinstance(error, FileNotFoundError):  # it was deleted before it could be copied
                self.notice = (
                    f"Checkpoint {found.name} could not be copied: {error.strerror}. It is tried again."
                )
            return None
        name, key = found.name, found.key
        snapshot = CheckpointCopy(
            name, copy, step_of(name), size_bytes, sha256, key[2] / 1e9, key, prefix_of(copy)
        )
        with self._lock:
            self._taken[name] = key
            outdated = self._outdated(name)
            self._pending = [kept for kept in self._pending if kept not in outdated] + [snapshot]
            self._write_notes()
        for old in outdated:
            old.path.unlink(missing_ok=True)
        log.info("checkpoint %s taken (%d bytes, sha256 %s)", name, size_bytes, sha256[:12])
        return snapshot

    def _agrees(self, found: _Candidate, part: Path) -> bool:
        """Whether the copy agrees with its own checksums; where it does not, the file is copied again later."""
        if agrees_with_its_sums(part):
            self._differing.pop(found.name, None)
            return True
        self._differing[found.name] = found.key
        return False

    def _outdated(self, name: str) -> list[CheckpointCopy]:
        """Earlier copies that a new one makes needless, so that a script that overwrites one file all the time
        does not fill the disk while the server is away. The first may be on its way already."""
        return [waiting for waiting in self._pending if waiting.name == name][1:]

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

    def _read_notes(self) -> tuple[dict[str, FileKey], list[CheckpointCopy]]:
        try:
            notes = json.loads(self._notes.read_text())
            taken = {name: _key(key) for name, key in notes["taken"].items()}
            pending = [
                CheckpointCopy(
                    **{**fields, "path": self._outbox / fields["path"], "key": _key(fields["key"])}
                )
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


def _key(key: Sequence[int]) -> FileKey:
    inode, size, mtime_ns = key
    return inode, size, mtime_ns
