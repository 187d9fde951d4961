"""Copy the files an attempt appends to (logs, event files) to the server: by byte offset, in turn, in chunks."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.masking.values import ValueMask
from domain.text.json_values import parse_json
from worker.node.holes import first_hole
from worker.node.regular_files import bytes_of
from worker.node.run_files import LOGGERS, PROFILES, Listing, data_directory, is_event_file, name_on_server
from worker.node.scans import pause_after
from worker.node.state_files import write_whole
from worker.session.bodies import LEAST_BYTES
from worker.session.failures import OffsetMismatch, RequestFailed, RequestRefused, TooLarge
from worker.session.outbox import Outgoing, StreamStep
from worker.session.pieces import Answer, Piece
from worker.streams.events import find_event_files
from worker.streams.masked_files import MaskedFile, masked_bytes
from worker.streams.masked_traces import is_trace_masked

log = logging.getLogger(__name__)
CHUNK_BYTES = 1024 * 1024
LAST_CHUNK_BYTES = 4 * CHUNK_BYTES
"""After the end: each chunk costs the server a write to its disk and to its store."""
STEP_BYTES = 16 * CHUNK_BYTES
CAP_BYTES = 1024 * CHUNK_BYTES


class FileMirror:
    """Mirrors one attempt's `logs/*.out|err` and the event files below its working directories."""

    def __init__(
        self,
        attempt_dir: Path,
        roots: Sequence[Path],
        offset_of: OffsetOf,
        piece_of: PieceOf,
        *,
        ignore: Listing | None = None,
        cap_bytes: int = CAP_BYTES,
        step_bytes: int = STEP_BYTES,
        most: Callable[[int], int] = lambda wanted_bytes: wanted_bytes,
        mask: ValueMask | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._attempt_dir, self._clock = attempt_dir.resolve(), clock
        self._roots = [root.resolve() for root in roots]
        self._offset_of, self.piece_of = offset_of, piece_of
        self._ignored = {path: key[0] for path, key in (ignore or {}).items()}
        self._cap_bytes, self._step_bytes, self._most = cap_bytes, step_bytes, most
        self._mask, self._is_final = mask or ValueMask(), False
        self._state_file = self._attempt_dir / "worker" / "mirror.json"
        self._files: dict[str, MirroredFile] = {}
        self._event_files: list[MirroredFile] = []
        self._is_frozen = False
        """Whether the files of the ended attempt are known as they are: none is looked at again."""
        self._remembered = self._read_state()
        self.is_continued = bool(self._remembered)
        """Whether an earlier worker has begun with this attempt."""
        self._order: deque[str] = deque()
        self._scan_at = float("-inf")
        self.has_more_files = False
        """Whether the last step left out files that have bytes to send."""
        self.left_out = 0
        """Event files beyond `MAX_EVENT_FILES`: neither read nor copied."""
        self.too_large: list[Path] = []
        """Folders with more entries than are looked at."""

    def step(self, now: float) -> StreamStep:
        """Return a step that sends about `step_bytes`, one chunk of each file in turn.

        It raises what `offset_of` raises; the next one continues where this one stopped."""
        return StreamStep(partial(self._chunks, now))

    def _chunks(self, now: float, step: StreamStep) -> Iterator[list[_Chunk]]:
        """Yield the chunks that are sent together, until the step is long enough."""
        self._scan(now)
        waiting = (self._files[path] for path in self._order if self._unsent(self._files[path]))
        turn = deque(islice(waiting, STEP_FILES))
        # A file whose sending fails must not be the first one every time.
        self._order.rotate(-len(turn) if len(turn) == STEP_FILES else -1)
        self.has_more_files = len(turn) == STEP_FILES
        while turn and step.sent < self._step_bytes:
            chunks = [_Chunk(self, file) for file in self._next_in(turn)]
            self._note_heads([chunk.file for chunk in chunks])
            yield chunks
            step.sent += sum(chunk.sent_bytes for chunk in chunks)
            turn += [chunk.file for chunk in chunks if chunk.sent_bytes and self._unsent(chunk.file)]
        step.has_more = self.has_more_files or step.sent >= (1 if self._is_final else self._step_bytes)

    def finish(self) -> None:
        """Send each file as it is now: its writer has ended, and what a stranger appends to it is not the run's."""
        self._is_final = True

    def pending_bytes(self) -> int:
        """Return the number of bytes on disk that are not on the server yet."""
        self._scan(float("inf"))
        return sum(self._unsent(file) for file in self._files.values())

    def sent_and_total(self) -> tuple[int, int]:
        """Return the number of bytes on the server, and of those with what is still to be sent."""
        files = list(self._files.values())
        sent_bytes = sum(file.sent_bytes or 0 for file in files)
        return sent_bytes, sent_bytes + sum(self._unsent(file) for file in files)

    def refusals(self) -> list[str]:
        """Return one sentence for each file that the server refuses."""
        return [file.refusal for file in list(self._files.values()) if file.refusal]

    def losses(self) -> list[str]:
        """Return one sentence for each file whose end could not be read any more."""
        return [file.loss for file in list(self._files.values()) if file.loss and not self._unsent(file)]

    def holes(self) -> list[str]:
        """Return one sentence for each file with data behind a hole that is not copied."""
        return [
            f"{file.path} was never written from byte {file.hole[0]:,} to byte {file.hole[1]:,}."
            for file in list(self._files.values())
            if file.hole
        ]

    def event_files(self) -> list[MirroredFile]:
        """Return the event files seen so far. May be called from another thread."""
        return list(self._event_files)

    def found_event_files(self) -> list[Path]:
        """Return the paths of all event files that are there now."""
        return [source for source, _ in self._find_event_files()]

    def logs(self) -> list[MirroredFile]:
        """Return the logs seen so far. May be called from another thread."""
        return [file for file in list(self._files.values()) if file.is_log]

    # -- finding files -------------------------------------------------------------------------

    def _scan(self, now: float) -> None:
        for path, source in (*self._logs(), *self._profiles(), *self._logger_settings()):
            if not (self._is_frozen and path in self._files):
                self._register(path, source)
        if now >= self._scan_at and not self._is_frozen:
            began = self._clock.now()
            self.left_out, self.too_large = 0, []
            event_files = list(self._find_event_files())
            self._scan_at = now + pause_after(self._clock.now() - began)
            if now == float("inf"):
                self._scan_at = float("-inf")
            for source, root in event_files:
                self._register(name_on_server(source, self._attempt_dir, root), source)
            self._is_frozen = self._is_final

    def _logs(self) -> Iterator[tuple[str, Path]]:
        """Yield the logs. Our supervisor's links in `logs/` are followed if they stay in the attempt's directory."""
        logs = self._attempt_dir / "logs"
        if not logs.is_dir():
            return
        for entry in sorted(logs.iterdir()):
            if entry.suffix in (".out", ".err"):
                source = Path(os.path.realpath(entry))
                if source.is_relative_to(self._attempt_dir):
                    yield f"logs/{entry.name}", source

    def _profiles(self) -> Iterator[tuple[str, Path]]:
        """Yield the traces of profiles; each is complete when it has its name."""
        for source in sorted((self._attempt_dir / PROFILES).glob("*/trace*.json.gz")):
            if is_trace_masked(source, self._mask):
                yield source.relative_to(self._attempt_dir).as_posix(), source

    def _logger_settings(self) -> Iterator[tuple[str, Path]]:
        """Yield the files with hyperparameters and tags of other loggers."""
        for source in sorted((self._attempt_dir / LOGGERS).glob("settings-*.jsonl")):
            yield source.relative_to(self._attempt_dir).as_posix(), source

    def _find_event_files(self) -> Iterator[tuple[Path, Path]]:
        prune = data_directory(self._attempt_dir)
        for root in self._roots:
            sources = [
                source
                for source in find_event_files(root, prune, partial(self.too_large.append, root))
                if str(source) not in self._ignored or _inode(source) != self._ignored[str(source)]
            ]
            self.left_out += max(0, len(sources) - MAX_EVENT_FILES)
            yield from ((source, root) for source in sources[:MAX_EVENT_FILES])

    def _register(self, path: str, source: Path) -> None:
        """Register a new file, a grown one, and a truncated or replaced one (a new generation)."""
        try:
            status = source.lstat()
        except OSError:
            return
        if not stat.S_ISREG(status.st_mode):
            return
        path = self._mask.text(path)
        file = self._files.get(path)
        if file is None:
            file = self._add(path, source, status.st_ino)
        if file.inode != status.st_ino or status.st_size < file.size_bytes:
            self._start_generation(file, status.st_ino)
        file.hole = first_hole(source, status, file.sent_bytes or 0)
        file.source, file.size_bytes = source, file.hole[0] if file.hole else status.st_size

    def _add(self, path: str, source: Path, inode: int) -> MirroredFile:
        file = self._remembered.pop(path, None) or MirroredFile(path, source, inode)
        self._files[path] = file
        self._order.append(path)
        if is_event_file(path.rpartition("/")[2]):
            self._event_files.append(file)
        return file

    def _start_generation(self, file: MirroredFile, inode: int) -> None:
        file.inode, file.head, file.sent_bytes = inode, b"", None
        file.unreadable_size_bytes = file.refusal = file.loss = file.hole = file.masked = None
        file.generation += 1
        self._write_state()

    # -- sending -------------------------------------------------------------------------------

    def _unsent(self, file: MirroredFile) -> int:
        if not file.size_bytes or file.size_bytes == file.unreadable_size_bytes or file.refusal:
            return 0
        end = min(file.size_bytes, self._cap_bytes)
        if file.size_bytes > self._cap_bytes:
            end += len(self._marker(file))
        return max(0, end - (file.sent_bytes or 0))

    def _next_in(self, turn: deque[MirroredFile]) -> Iterator[MirroredFile]:
        """Take those whose next chunks make about a step."""
        planned_bytes = 0
        while turn and planned_bytes < self._step_bytes:
            planned_bytes += min(CHUNK_BYTES, self._unsent(turn[0]))
            yield turn.popleft()

    def chunk_of(self, file: MirroredFile, most_bytes: int | None) -> tuple[int, bytes]:
        """Return the file's next bytes, and where they begin; at most so many, by default as many as usual."""
        offset = self._agreed_offset(file)
        most_bytes = most_bytes or self._most(LAST_CHUNK_BYTES if self._is_frozen else CHUNK_BYTES)
        return offset, self._read(file, offset, most_bytes)

    def give_up(self, file: MirroredFile, offset: int, refusal: RequestRefused) -> None:
        """Send no more of a file: an attempt's end must not wait for bytes that the server never accepts."""
        file.refusal = f"{file.path} was refused at byte {offset}: {refusal}"
        log.error("%s; the remaining bytes are not copied, they stay at %s", file.refusal, file.source)

    def _agreed_offset(self, file: MirroredFile) -> int:
        while file.sent_bytes is None:
            self.continue_at(file, self._offset_of(file.path, file.generation))
        return file.sent_bytes

    def continue_at(self, file: MirroredFile, have: int) -> None:
        """Continue at the server's offset `have`; an offset beyond the file's end means that the file is another one.

        Raises RequestFailed for an offset that no server can have.
        """
        if have > self._cap_bytes + len(self._marker(file)):
            raise RequestFailed(f"{file.path}: {have} bytes are more than any server was ever sent")
        if have > file.size_bytes and have <= self._cap_bytes:
            self._start_generation(file, file.inode)
        else:
            file.sent_bytes = have

    def _read(self, file: MirroredFile, offset: int, most: int) -> bytes:
        if offset >= self._cap_bytes:
            return self._marker(file)[offset - self._cap_bytes :][:most]
        try:
            fd = os.open(file.source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                end = file.size_bytes if file.hole or self._is_frozen else self._cap_bytes
                return self._read_if_unchanged(fd, file, min(most, end - offset, self._cap_bytes - offset), offset)
            finally:
                os.close(fd)
        except OSError as error:  # missing, forbidden or broken: an attempt's end must not wait for it
            log.warning("%s: %d bytes are lost: %s", file.source, file.size_bytes - offset, error.strerror)
            file.unreadable_size_bytes = file.size_bytes
            file.loss = f"{file.path}: {file.size_bytes - offset:,} bytes could not be read ({error.strerror})."
            return b""

    def _read_if_unchanged(self, fd: int, file: MirroredFile, size: int, offset: int) -> bytes:
        """Return the bytes at `offset`; if the file was replaced, start a new generation and return nothing."""
        head, status = self._head(fd), os.fstat(fd)
        if status.st_ino != file.inode or head[: len(file.head)] != file.head or self._is_cut(file, status):
            if self._is_frozen:
                raise OSError(errno.ESTALE, "cut or replaced after the end")
            self._start_generation(file, status.st_ino)
            return b""
        if len(file.head) < HEAD_BYTES and head != file.head:
            file.head = head
            self._write_state()
        file.masked = file.masked or MaskedFile(self._mask, has_events=is_event_file(file.path.rpartition("/")[2]))
        return file.masked.read(fd, offset, size, final=self._is_final)

    def _is_cut(self, file: MirroredFile, status: os.stat_result) -> bool:
        """Whether a file that is not looked at any more has become shorter."""
        return self._is_frozen and status.st_size < min(file.size_bytes, self._cap_bytes)

    def _note_heads(self, files: Sequence[MirroredFile]) -> None:
        """Write down how new files begin, of all in one go: by that a replaced one is known after a restart."""
        heads = {id(file): self._head_of(file.source) for file in files if not file.head}
        for file in files:
            file.head = heads.get(id(file)) or file.head
        if any(heads.values()):
            self._write_state()

    def _head_of(self, source: Path) -> bytes:
        """Return the first bytes of a file; none where it cannot be read, which its sending tells."""
        with suppress(OSError):
            fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                return self._head(fd)
            finally:
                os.close(fd)
        return b""

    def _head(self, fd: int) -> bytes:
        """Return the first bytes as they stay when the file is masked in place, because they are written down."""
        if not self._mask:
            return os.pread(fd, HEAD_BYTES, 0)
        return masked_bytes(fd, 0, HEAD_BYTES, self._mask, final=False)

    def _marker(self, file: MirroredFile) -> bytes:
        """Return the notice at the end of a cut log. Its text is fixed, so sending it can be resumed."""
        if not file.is_log:
            return b""
        return (
            f"\n[rankzero] This log is longer than {self._cap_bytes} bytes. The remaining lines are not copied here; "
            f"the whole file stays on the node: {self._attempt_dir / file.path}\n"
        ).encode(errors="replace")

    # -- state for a restarted worker -----------------------------------------------------

    def _read_state(self) -> dict[str, MirroredFile]:
        try:
            files = parse_json(bytes_of(self._state_file))
            return {
                path: MirroredFile(path, Path(), state["inode"], state["generation"], bytes.fromhex(state["head"]))
                for path, state in files.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write_state(self) -> None:
        files = {**self._remembered, **self._files}
        states = {
            path: {"inode": file.inode, "generation": file.generation, "head": file.head.hex()}
            for path, file in files.items()
        }
        try:
            write_whole(self._state_file, json.dumps(states))
        except OSError as error:  # a full disk: mirroring continues, since stopping frees nothing
            log.warning("%s could not be written: %s", self._state_file, error.strerror)


HEAD_BYTES = 64
"""Bytes remembered from a file's beginning: a new file may get the inode of the one it replaces."""
MAX_EVENT_FILES = 10_000
"""Event files of one directory that are read, the oldest first."""
STEP_FILES = 512
"""Files in one step: a run with thousands of them leaves other runs their turns."""
OffsetOf = Callable[[str, int], int]
"""(path, generation) -> the number of bytes the server has."""
PieceOf = Callable[[str, int, int, bytes], Piece]
"""(path, generation, offset, data) -> the piece to send."""


class _Chunk(Outgoing):
    """The next bytes of one file, halved until they pass."""

    def __init__(self, mirror: FileMirror, file: MirroredFile) -> None:
        self._mirror, self.file = mirror, file
        self._most_bytes: int | None = None
        self._offset = self._size_bytes = 0
        self._is_answered = False
        self.sent_bytes = 0

    def pending(self) -> list[Piece]:
        """Return the bytes, unless they are sent or cannot be read."""
        if self._is_answered:
            return []
        self._offset, content = self._mirror.chunk_of(self.file, self._most_bytes)
        self._size_bytes = len(content)
        return [self._mirror.piece_of(self.file.path, self.file.generation, self._offset, content)] if content else []

    def answered(self, answers: Sequence[Answer]) -> None:
        """Note what the server has; give the file up where it refuses the smallest part. Raises other failures."""
        (answer,), half_bytes, self._is_answered = answers, self._size_bytes // 2, True
        if isinstance(answer, int):
            self.file.sent_bytes, self.sent_bytes = answer, self._size_bytes
        elif isinstance(answer, OffsetMismatch):
            self._mirror.continue_at(self.file, answer.have)
        elif isinstance(answer, TooLarge) and half_bytes >= LEAST_BYTES:
            self._most_bytes, self._is_answered = half_bytes, False
        elif isinstance(answer, RequestRefused):
            self._mirror.give_up(self.file, self._offset, answer)
        else:
            raise answer


@dataclass
class MirroredFile:
    """One generation of one file on its way to the server."""

    path: str
    """Its name on the server."""
    source: Path
    """Its path on this node, links resolved."""
    inode: int
    generation: int = 0
    head: bytes = b""
    size_bytes: int = 0
    sent_bytes: int | None = None
    """None until the server has reported its offset."""
    unreadable_size_bytes: int | None = None
    """Size when it could not be read: it is tried again when the size changes."""
    hole: tuple[int, int] | None = None
    """Begin and end of the first long stretch that was never written: what follows stays on the node."""
    masked: MaskedFile | None = None
    """Reads it; None until it is read for the first time."""
    loss: str | None = None
    """What could not be read of it."""
    refusal: str | None = None
    """Why the server accepts no more of it: the remaining bytes stay on the node."""

    @property
    def is_log(self) -> bool:
        """True for logs that people read, False for event files."""
        return self.path.startswith("logs/")


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None
