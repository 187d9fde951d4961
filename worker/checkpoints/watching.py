"""Finds complete checkpoints and copies each of them before it changes or is deleted."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from domain.checkpoints.names import is_folder_of_one_save, part_name
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import Finding
from domain.text.formats import size
from domain.text.json_values import parse_json
from worker.checkpoints.contents import contents_of
from worker.checkpoints.copies import copy_file, copy_folder
from worker.checkpoints.examination import WRONG_CHECKSUM, Examination
from worker.checkpoints.folders import Folder, find_checkpoints, may_grow_into_folder
from worker.checkpoints.formats import Completeness, completeness, step_of, what_is_missing
from worker.checkpoints.names import prefix_of
from worker.node.holes import BLOCK_BYTES
from worker.node.regular_files import bytes_of
from worker.node.run_files import (
    MAX_ENTRIES,
    FileKey,
    Listing,
    data_directory,
    entry_key,
    is_checkpoint_name,
    name_on_server,
)
from worker.node.scans import pause_after
from worker.node.state_files import write_whole

log = logging.getLogger(__name__)
T = TypeVar("T")
QUIET_S = 5.0
"""A file or folder without an end mark counts as complete after this many seconds without a write."""
RESERVE_BYTES = 256 * 1024 * 1024
"""Disk space that copies leave free for the training itself."""


class CheckpointWatch:
    """Watches an attempt's directories, and keeps the copies until they are `done`."""

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
        world_size: int = 1,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`is_mapped`: whether a process of the attempt can write to this path through an open mmap.

        `world_size`: the number of ranks, each of which may write files of its own."""
        self._attempt_dir = outbox.parent.resolve()
        self._outbox = self._attempt_dir / outbox.name
        self._roots = [root.resolve() for root in roots]
        self._quiet_s, self._reserve_bytes = quiet_s, reserve_bytes
        self._free_bytes = free_bytes or (lambda path: shutil.disk_usage(path).free)
        self._is_mapped, self._world_size, self._clock = is_mapped, world_size, clock
        self._members: dict[str, Mapping[str, FileKey]] = {}
        """The files of each checkpoint of several files when it was copied last."""
        self._differing: dict[str, FileKey] = {}
        """Keys of checkpoints whose copy did not match their own checksums."""
        self._unreadable: dict[str, FileKey] = {}
        """Keys of checkpoints that could not be examined."""
        self._ignored: dict[str, FileKey] = {path: FileKey(*key) for path, key in (ignore or {}).items()}
        self.notice: str | None = None
        """One sentence while a checkpoint cannot be copied."""
        self._looks: dict[str, tuple[FileKey, float]] = {}
        self._examined: dict[str, tuple[_Candidate, Path, Examination]] = {}
        """Checkpoints whose copy is being examined, with the copy."""
        self._scan_at = float("-inf")
        self._is_ended = self._is_final = False
        self._lock = threading.Lock()  # one thread copies, another uploads
        self._outbox.mkdir(parents=True, exist_ok=True)
        self._sent: dict[str, CheckpointCopy] = {}
        """What the server had last of each checkpoint."""
        self.refused: dict[str, str] = {}
        """A sentence for each checkpoint that the server refused."""
        self._taken, self._pending = self._read_notes()
        self._sweep()

    def step(self, now: float, *, final: bool = False) -> list[CheckpointCopy]:
        """Copy complete checkpoints and return the new copies. `now` is monotonic; copying may take seconds.

        A large one is returned by a later step. `final`: all writers have ended, so no quiet is waited for."""
        self._is_final = self._is_final or final
        copies = self._conclude_examined(final)
        if now < self._scan_at and not final:
            return copies
        began, earlier = self._clock.now(), len(self._examined)
        self.notice = None
        candidates = [candidate for candidate in self._candidates() if candidate.name not in self._examined]
        for candidate in candidates:
            if self._is_ended:
                break
            self._guarded(candidate, partial(self._take, candidate, now, final))
        self._looks = {one.name: look for one in candidates if (look := self._looks.get(one.name))}
        self._scan_at = now + (pause_after(self._clock.now() - began) if len(self._examined) == earlier else 0.0)
        return copies + self._conclude_examined(final, MOSTLY_EXAMINED_S)

    def pending(self) -> list[CheckpointCopy]:
        """Copies that the server does not have yet, the oldest first; survives a restart of the worker."""
        return sorted(self._pending, key=lambda copy: copy.written_at)

    def done(self, copy: CheckpointCopy) -> None:
        """Delete a copy that the server has, or has renamed away."""
        with self._lock:
            self._pending = [other for other in self._pending if other.path != copy.path]
            self._write_notes()
        copy.path.unlink(missing_ok=True)

    def stored(self, copy: CheckpointCopy) -> None:
        """Delete a copy that the server has stored, and remember it."""
        self._sent[copy.name] = copy
        self.refused.pop(copy.name, None)
        self.done(copy)

    def sent(self) -> list[CheckpointCopy]:
        """Return the checkpoints that the server had and that are here unchanged, the oldest first."""
        here = {candidate.name: candidate.key for candidate in self._all_candidates()}
        sent = [copy for name, copy in self._sent.items() if here.get(name) == copy.key]
        return sorted(sent, key=lambda copy: copy.written_at)

    def forget(self, copy: CheckpointCopy) -> None:
        """Give up a damaged or missing copy; the checkpoint is copied again if it still exists."""
        if self._taken.get(copy.name) == copy.key:
            del self._taken[copy.name]
        self.done(copy)

    def end(self) -> None:
        """Copy nothing more; the copy that is being made is given up."""
        self._is_ended = True

    def take_again(self, name: str) -> None:
        """Copy a checkpoint again at the next step, although it was copied before."""
        if not any(copy.name == name for copy in self._pending):
            self._taken.pop(name, None)

    def incomplete(self) -> list[Unfinished]:
        """Checkpoints without a copy at the end: cut short by a kill, or impossible to copy."""
        unfinished = [self._unfinished(candidate) for candidate in self._candidates()]
        return sorted(filter(None, unfinished), key=lambda checkpoint: checkpoint.name)

    def _unfinished(self, candidate: _Candidate) -> Unfinished | None:
        name, size_bytes = candidate.name, candidate.key.size_bytes
        if self._unreadable.get(name) == candidate.key:
            return Unfinished(name, size_bytes, "it could not be examined", name in self._taken)
        completeness = candidate.completeness()
        if completeness is Completeness.FOREIGN:
            return None
        has_earlier = name in self._taken
        if candidate.leads_outside(self._roots):
            return Unfinished(name, size_bytes, "", has_earlier, is_linked=True)
        if self._differing.get(name) == candidate.key:
            return Unfinished(name, size_bytes, WRONG_CHECKSUM, has_earlier)
        if completeness is Completeness.INCOMPLETE:
            return Unfinished(name, size_bytes, candidate.what_is_missing(), has_earlier)
        if stale := self._file_of_earlier_save(candidate):
            return Unfinished(name, size_bytes, f"{stale} in it is still from the previous save", has_earlier)
        has_room = self._has_room_for(candidate)
        reason = "it could not be copied" if has_room else "the node's disk has no space for a copy of it"
        return Unfinished(name, size_bytes, reason, has_earlier, is_whole=True)

    # -- looking -------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[_Candidate]:
        """Checkpoints that are neither older than the attempt nor copied already."""
        return (one for one in self._all_candidates() if self._taken.get(one.name) != one.key)

    def _all_candidates(self) -> Iterator[_Candidate]:
        """Checkpoints that are not older than the attempt."""
        prune = data_directory(self._attempt_dir)
        for root in self._roots:
            for entry in find_checkpoints(root, prune, self._world_size):
                yield from self._candidates_of(entry, root)

    def _candidates_of(self, entry: Folder | os.DirEntry[str], root: Path) -> Iterator[_Candidate]:
        """Yield the checkpoint, or its files one by one where nothing tells, for long, whether they are all of it."""
        if not isinstance(entry, Folder):
            yield from self._file(Path(entry.path), entry_key(entry), root)
        elif not entry.is_unclear:
            if entry.is_new(self._ignored):
                name = name_on_server(entry.place, self._attempt_dir, root).removesuffix("/.")
                yield _Candidate(entry.path, f"{name}.tar", entry.key, entry)
        elif self._is_final or self._clock.wall() - entry.key.mtime_ns / 1e9 > UNCLEAR_QUIET_S:
            for name, key in entry.members.items():
                if is_checkpoint_name(name.rpartition("/")[2]):
                    yield from self._file(entry.path / name, key, root)

    def _file(self, path: Path, key: FileKey | None, root: Path) -> Iterator[_Candidate]:
        """Yield a file by itself unless it is older than the attempt, or left of a checkpoint that was copied."""
        name = name_on_server(path, self._attempt_dir, root).removesuffix("/.")
        if key is not None and self._ignored.get(str(path)) != key and not self._is_left(name):
            yield _Candidate(path, name, key)

    def _is_left(self, name: str) -> bool:
        """Whether it is left of a checkpoint of several files that was copied: some scripts delete the others later."""
        *folders, _ = PurePosixPath(name).parents
        saves = [str(folder) for folder in folders if is_folder_of_one_save(folder.name)]
        saves += [name.removesuffix(PurePosixPath(name).suffix)] if part_name(name).numbers else []
        return any(f"{save}.tar" in self._taken for save in saves)

    def _guarded(self, candidate: _Candidate, work: Callable[[], T]) -> T | None:
        """Do something with one; whatever a file contains, it holds up no other."""
        try:
            return work()
        except Exception as error:
            if candidate.name not in self._unreadable:
                log.warning("checkpoint %s cannot be examined: %r", candidate.name, error, exc_info=error)
            self._unreadable[candidate.name] = candidate.key
            return None

    def _take(self, candidate: _Candidate, now: float, final: bool) -> None:
        if not final and not self._has_settled(candidate, now):
            return
        if not self._is_whole(candidate, now, final) or candidate.leads_outside(self._roots):
            return
        if not final and self._is_mapped(candidate.path):
            return
        if not self._has_room_for(candidate):
            self.notice = (
                f"Too little disk space to copy checkpoint {candidate.name}: it needs {size(candidate.key.size_bytes)} "
                f"and {size(self._reserve_bytes)} more must stay free. Free some space; it is retried."
            )
            return
        self._copy(candidate, final)

    def _has_room_for(self, candidate: _Candidate) -> bool:
        return self._free_bytes(self._outbox) >= candidate.needed_bytes() + self._reserve_bytes

    def _has_settled(self, candidate: _Candidate, now: float) -> bool:
        """Whether nothing was written to it for long enough, by our clock or, for a file, by its own time.

        Copied folders keep old times."""
        needed_s = max(SETTLE_S, candidate.quiet_s(self._quiet_s))
        earlier_key, since = self._looks.get(candidate.name, (None, now))
        if earlier_key != candidate.key:
            self._looks[candidate.name] = (candidate.key, now)
            since = now
        is_old = candidate.folder is None and abs(self._clock.wall() - candidate.key.mtime_ns / 1e9) > needed_s
        return is_old or now - since >= needed_s

    def _is_whole(self, candidate: _Candidate, now: float, final: bool) -> bool:
        completeness = candidate.completeness()
        if self._file_of_earlier_save(candidate):
            return False
        if completeness is Completeness.UNKNOWN:
            return final or now - self._looks[candidate.name][1] >= self._quiet_s
        return completeness is Completeness.COMPLETE

    def _file_of_earlier_save(self, candidate: _Candidate) -> str | None:
        """A rank's file that is older than those of other ranks: unchanged since the last copy, unlike theirs."""
        members, earlier = candidate.folder.members if candidate.folder else {}, self._members.get(candidate.name, {})
        of_ranks = [name for name in members if part_name(name).rank is not None]
        unchanged = [name for name in of_ranks if earlier.get(name) == members[name]]
        return unchanged[0] if 0 < len(unchanged) < len(of_ranks) else None

    # -- copying -------------------------------------------------------------------------------

    def _copy(self, candidate: _Candidate, final: bool) -> None:
        """Copy the very version that was looked at, and begin to examine it, unless it changed or cannot be copied."""
        part = self._outbox / f"{secrets.token_hex(8)}.part"
        running = sum(not examination.is_over() for *_, examination in self._examined.values())
        try:
            if candidate.copy_to(part, lambda: not self._is_ended):
                examination = Examination(part, beside=not final and running < MOST_BESIDE, clock=self._clock)
                self._examined[candidate.name] = candidate, part, examination
            else:
                part.unlink(missing_ok=True)
        except OSError as error:
            self._failed(candidate, part, error)

    def _conclude_examined(self, final: bool, wait_s: float = 0.0) -> list[CheckpointCopy]:
        """The copies whose examination ends within `wait_s` seconds; all of them if `final`."""
        until = self._clock.now() + wait_s
        over = [
            candidate
            for candidate, _, examination in self._examined.values()
            if final or examination.is_over(max(0.0, until - self._clock.now()))
        ]
        copies = [self._guarded(candidate, partial(self._conclude, candidate)) for candidate in over]
        return [copy for copy in copies if copy is not None]

    def _conclude(self, candidate: _Candidate) -> CheckpointCopy | None:
        """Note the examined copy; one that differs from its own checksums is made again later."""
        name, key = candidate.name, candidate.key
        _, part, examination = self._examined.pop(name)
        try:
            if (sha256 := examination.sha256()) is None:
                self._differing[name] = key
                part.unlink(missing_ok=True)
                return None
            size_bytes = part.stat().st_size
            path = part.rename(part.with_suffix(""))
        except OSError as error:
            self._failed(candidate, part, error)
            return None
        self._differing.pop(name, None)
        copy = CheckpointCopy(
            name, path, _step_of(candidate), size_bytes, sha256, key.mtime_ns / 1e9, key, prefix_of(path),
            holds=_contents(candidate, path),
        )  # fmt: skip
        self._add(copy, candidate.folder.members if candidate.folder else {})
        log.info("checkpoint %s copied (%d bytes, sha256 %s)", name, size_bytes, sha256[:12])
        return copy

    def _failed(self, candidate: _Candidate, part: Path, error: OSError) -> None:
        part.unlink(missing_ok=True)
        was_deleted = isinstance(error, FileNotFoundError)  # before it could be copied
        if not (was_deleted or self._is_ended):
            self.notice = f"Checkpoint {candidate.name} could not be copied: {error.strerror}. It is retried."

    def _add(self, copy: CheckpointCopy, members: Mapping[str, FileKey]) -> None:
        """Note the copy and delete outdated ones, so that a script that overwrites one file does not fill the disk.

        The first copy of a name stays, because it may be on its way to the server."""
        with self._lock:
            self._taken[copy.name] = copy.key
            self._members[copy.name] = members
            outdated = [other for other in self._pending if other.name == copy.name][1:]
            self._pending = [other for other in self._pending if other not in outdated] + [copy]
            self._write_notes()
        for other in outdated:
            other.path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Delete copies that a killed worker left unfinished or unknown."""
        expected = {copy.path for copy in self._pending} | {self._notes}
        for path in self._outbox.iterdir():
            if path not in expected and path.is_file():
                path.unlink(missing_ok=True)

    # -- notes for a restarted worker ----------------------------------------------------------

    @property
    def _notes(self) -> Path:
        return self._outbox / "taken.json"

    def _read_notes(self) -> tuple[dict[str, FileKey], list[CheckpointCopy]]:
        try:
            notes = parse_json(bytes_of(self._notes))
            keys = {name: FileKey(*key) for name, key in notes["taken"].items()}
            copies = [self._copy_of(fields) for fields in notes["pending"]]
            self._sent = {copy.name: copy for copy in map(self._copy_of, notes.get("sent", []))}
            self.refused = {name: str(why) for name, why in notes.get("refused", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, []
        intact = [copy for copy in copies if _size_bytes(copy.path) == copy.size_bytes]
        for copy in copies:
            if copy not in intact and keys.get(copy.name) == copy.key:
                del keys[copy.name]
        return keys, intact

    def _copy_of(self, fields: dict[str, Any]) -> CheckpointCopy:
        """Raises KeyError, TypeError for what is no copy."""
        return CheckpointCopy(**{**fields, "path": self._outbox / fields["path"], "key": FileKey(*fields["key"])})

    def _write_notes(self) -> None:
        lists = {"pending": self._pending, "sent": [*self._sent.values()]}
        noted = {name: [{**vars(copy), "path": copy.path.name} for copy in copies] for name, copies in lists.items()}
        notes = {"taken": self._taken, "refused": self.refused, **noted}
        try:
            write_whole(self._notes, json.dumps(notes))
        except OSError as error:  # a full disk: after a restart the checkpoints are copied again
            self.notice = f"The list of checkpoints on their way could not be written: {error.strerror}."


MARKED_QUIET_S = 1.0
"""Seconds after a folder's end mark, because scripts write more files then."""
SETTLE_S = 0.05
"""File times advance in steps of milliseconds: only after these seconds does a write surely change them."""
UNCLEAR_QUIET_S = 60.0
"""Seconds without a write after which files that may lack those of other ranks are copied one by one."""
DIGITS_OF_STEP = 5
"""A number without a word that is at least this long counts steps: `model_000120.pt`, but not `model_5.pt`."""
MOST_BESIDE = 4
"""Copies that are examined by programs of their own at a time; others are examined at once."""
MOSTLY_EXAMINED_S = 0.5
"""Seconds that the examination of a copy of a few hundred megabytes takes on a core that is idle."""


@dataclass(frozen=True)
class CheckpointCopy:
    """A complete copy of a checkpoint, waiting in the outbox until the server has it."""

    name: str
    """The checkpoint's path relative to the attempt's directory."""
    path: Path
    step: int | None
    size_bytes: int
    sha256: str
    written_at: float
    key: FileKey
    """Key of the file or folder when it was copied."""
    prefix: str | None = None
    """The wrapper's prefix of its tensors' names."""
    holds: dict[str, Any] | None = None
    """Its `Contents`; None where they could not be read."""


@dataclass(frozen=True)
class _Candidate:
    """A file, or a folder that is uploaded as one tar file, that may be a complete checkpoint."""

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
        """Seconds without a write before its content is examined."""
        if self.folder is None:
            return min(unmarked_s, MARKED_QUIET_S) if may_grow_into_folder(self.path) else 0.0
        return min(unmarked_s, MARKED_QUIET_S) if self.folder.has_end_mark else unmarked_s

    def leads_outside(self, roots: Sequence[Path]) -> bool:
        """Whether one of its files is a hard link to a file elsewhere."""
        files = [self.path / name for name in self.folder.members] if self.folder else [self.path]
        try:
            return any(leads_outside(file, roots) for file in files)
        except OSError:  # it was just deleted
            return False

    def needed_bytes(self) -> int:
        """Bytes of disk that a copy takes: the holes of a file take none."""
        if self.folder is not None:
            return self.key.size_bytes
        try:
            return min(self.key.size_bytes, self.path.lstat().st_blocks * BLOCK_BYTES)
        except OSError:  # it was just deleted
            return self.key.size_bytes

    def copy_to(self, target: Path, may_continue: Callable[[], bool]) -> bool:
        """Copy it; False if it changed during that."""
        if self.folder is not None:
            return copy_folder(self.folder, target, may_continue)
        return copy_file(self.path, target, self.key, may_continue)


def _contents(candidate: _Candidate, copy: Path) -> dict[str, Any] | None:
    layout = candidate.folder.kind.value if candidate.folder else "file"
    contents = contents_of(copy, candidate.name, layout)
    return contents.model_dump() if contents else None


def _step_of(candidate: _Candidate) -> int | None:
    """The step in its name, otherwise the highest in the names of a folder's files, or a number as long as a step."""
    step = step_of(candidate.name)
    if step is not None or candidate.folder is None:
        return step
    step = max(filter(None, map(step_of, candidate.folder.members)), default=None)
    [number, *more] = part_name(candidate.name).numbers or [""]
    return int(number[:12]) if step is None and not more and len(number) >= DIGITS_OF_STEP else step


def _size_bytes(path: Path) -> int | None:
    """The size of a regular file; None if there is none."""
    return path.stat().st_size if path.is_file() else None


# Detects hard links: a file that has a name outside the run's folders may not belong to the run.


def leads_outside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether the file has a hard link outside `roots`. Frameworks link `last.ckpt` to the newest file of the same
    folder, which counts as inside. Raises OSError."""
    status = path.lstat()
    if status.st_nlink == 1:
        return False
    names = sum(1 for entry in _entries_below(roots) if _is_same(entry, status))
    return names < path.lstat().st_nlink  # read again: a link may have been deleted meanwhile


def _is_same(entry: os.DirEntry[str], status: os.stat_result) -> bool:
    if entry.inode() != status.st_ino:
        return False
    with suppress(OSError):
        entry_status = entry.stat(follow_symlinks=False)
        return (entry_status.st_dev, entry_status.st_ino) == (status.st_dev, status.st_ino)
    return False


def _entries_below(roots: Sequence[Path]) -> Iterator[os.DirEntry[str]]:
    """Yield every directory entry that is not a folder once, even where one root lies inside another."""
    pending, visited, entries_left = [str(root) for root in roots], set(), MAX_ENTRIES
    while pending and entries_left > 0:
        directory = pending.pop()
        if directory in visited:
            continue
        visited.add(directory)
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                entries_left -= 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry


# Findings about checkpoints that an ended attempt left without a copy.

KIND = "checkpoint not whole"
NOT_TAKEN = "checkpoint not taken"
LINKED = "checkpoint is a hard link"
MOST_NAMED = 10


@dataclass(frozen=True)
class Unfinished:
    """A checkpoint that exists on the node and was not copied."""

    name: str
    """Relative to the attempt's directory."""
    size_bytes: int
    missing: str
    """What is wrong with it, as the rest of a sentence."""
    has_earlier: bool = False
    """Whether an earlier version of it was copied."""
    is_whole: bool = False
    """Whether it is complete, but there was no space for a copy, or it could not be read."""
    is_linked: bool = False
    """Whether it is a hard link to a file outside the run's directory."""

    @property
    def kind(self) -> str:
        """The kind of its finding."""
        return LINKED if self.is_linked else NOT_TAKEN if self.is_whole else KIND


_ADVICE = {
    KIND: (
        "The attempt ended while this was being saved, or the script never finished it. It cannot be loaded, so it was "
        "not stored; it is still on the node. A resume starts from the last complete one.",
        "Save under a temporary name and rename it (os.replace) when it is complete. If a stop interrupted it, "
        "finish saving on SIGTERM, and allow more time with --stop-grace.",
    ),
    NOT_TAKEN: (
        "It is complete, but only on the node: it can be neither downloaded nor resumed from.",
        "Free some space on the node's disk for the next attempt; copy this file from the node by hand.",
    ),
    LINKED: (
        "A hard link shows the content of a file that may belong to somebody else, so it was neither copied nor "
        "listed. Links to files in the run's own directory are accepted.",
        "Copy the file into the run's directory (cp, shutil.copy) instead of linking it there.",
    ),
}
"""What each kind of finding means, and what to do."""


def incomplete_findings(unfinished: Sequence[Unfinished]) -> list[Finding]:
    """At an attempt's end, one finding each for cut, for uncopied and for hard-linked checkpoints."""
    return [
        Finding(kind=kind, evidence=_evidence(checkpoints), meaning=meaning, fix=fix)
        for kind, (meaning, fix) in _ADVICE.items()
        if (checkpoints := [checkpoint for checkpoint in unfinished if checkpoint.kind == kind])
    ]


def _evidence(unfinished: Sequence[Unfinished]) -> str:
    sentences = [_sentence(checkpoint) for checkpoint in unfinished[:MOST_NAMED]]
    if more := len(unfinished) - len(sentences):
        sentences.append(f"And {more} more.")
    return " ".join(sentences)


def _sentence(checkpoint: Unfinished) -> str:
    name = checkpoint.name if len(checkpoint.name) <= 300 else f"…{checkpoint.name[-299:]}"
    if checkpoint.is_linked:
        return f"{name} is a hard link to a file outside the run's directory."
    sentence = f"{name}: {checkpoint.size_bytes} bytes are there, and {checkpoint.missing}."
    return f"{sentence} An earlier version of it was stored." if checkpoint.has_earlier else sentence
