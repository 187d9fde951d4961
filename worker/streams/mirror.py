"""Copies what an attempt appends to (logs, event files) to the server: by byte offset, fairly, in pieces."""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.node.run_files import Listing, data_directory, name_on_server
from worker.session.body_limit import LEAST_BYTES
from worker.session.failures import OffsetMismatch, RequestFailed, RequestRefused, TooLarge
from worker.streams.events import find_event_files

log = logging.getLogger(__name__)

CHUNK_BYTES = 1024 * 1024
STEP_BYTES = 16 * CHUNK_BYTES
CAP_BYTES = 1024 * CHUNK_BYTES
HEAD_BYTES = 64
"""So much of a file's beginning is remembered: a new file may get the inode of the one it replaces."""
SCAN_EVERY_S = 1.0

OffsetOf = Callable[[str, int], int]
"""(path, generation) -> how many bytes of it the server has."""
Send = Callable[[str, int, int, bytes], int]
"""(path, generation, offset, data) -> the offset behind the data; raises OffsetMismatch, TooLarge, RequestRefused."""


@dataclass
class MirroredFile:
    """One generation of one file on its way to the server."""

    path: str
    """Its name on the server."""
    source: Path
    """Where it lies, links resolved."""
    inode: int
    generation: int = 0
    head: bytes = b""
    size_bytes: int = 0
    sent_bytes: int | None = None
    """None until the server was asked."""
    unreadable_size_bytes: int | None = None
    """How large it was when it could not be read: it is tried again when that changes."""
    refusal: str | None = None
    """Why the server takes no more of it: the rest stays on the node."""

    @property
    def is_log(self) -> bool:
        """True for text that people read, false for event files."""
        return self.path.startswith("logs/")


class FileMirror:
    """Mirrors one attempt's `logs/*.out|err` and the event files below its working directories."""

    def __init__(
        self,
        attempt_dir: Path,
        roots: Sequence[Path],
        offset_of: OffsetOf,
        send: Send,
        *,
        ignore: Listing | None = None,
        cap_bytes: int = CAP_BYTES,
        step_bytes: int = STEP_BYTES,
        most: Callable[[int], int] = lambda wanted_bytes: wanted_bytes,
    ) -> None:
        self._attempt_dir = attempt_dir.resolve()
        self._roots = [root.resolve() for root in roots]
        self._offset_of, self._send = offset_of, send
        self._ignored = {path: key[0] for path, key in (ignore or {}).items()}
        self._cap_bytes, self._step_bytes, self._most = cap_bytes, step_bytes, most
        self._notes = self._attempt_dir / "worker" / "mirror.json"
        self._known: dict[str, MirroredFile] = {}
        self._remembered = self._read_notes()
        self._order: deque[str] = deque()
        self._event_files: list[tuple[Path, Path]] = []
        self._scan_at = float("-inf")

    def step(self, now: float) -> int:
        """Sends at most `step_bytes`, a piece of each file in turn; returns how much went out.

        What `offset_of` and `send` raise goes through; the next call goes on where this one stopped.
        """
        self._look(now)
        turn = deque(path for path in self._order if self._unsent(self._known[path]))
        self._order.rotate(-1)  # a file whose sending fails must not be the first one every time
        sent = 0
        while turn and sent < self._step_bytes:
            file = self._known[turn.popleft()]
            piece = self._send_piece(file)
            sent += piece
            if piece and self._unsent(file):
                turn.append(file.path)
        return sent

    def pending_bytes(self) -> int:
        """How much is on disk now and not on the server; 0 when everything has arrived."""
        self._look(float("inf"))
        return sum(self._unsent(file) for file in self._known.values())

    def refusals(self) -> list[str]:
        """In words, what was set aside because the server takes none of it."""
        return [file.refusal for file in list(self._known.values()) if file.refusal]

    def event_files(self) -> list[MirroredFile]:
        """The event files seen so far, with their generations; may be asked from another thread."""
        return [file for file in list(self._known.values()) if not file.is_log]

    def logs(self) -> list[MirroredFile]:
        """The logs seen so far, with their generations; may be asked from another thread."""
        return [file for file in list(self._known.values()) if file.is_log]

    # -- what there is -------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        for path, source in self._logs():
            self._see(path, source)
        if now >= self._scan_at:
            began = time.monotonic()
            self._event_files = list(self._find_event_files())
            # A huge working directory is walked less often: at most a twentieth of the time.
            self._scan_at = now + max(SCAN_EVERY_S, 20 * (time.monotonic() - began))
            if now == float("inf"):
                self._scan_at = float("-inf")
        for source, root in self._event_files:
            self._see(name_on_server(source, self._attempt_dir, root), source)

    def _logs(self) -> Iterator[tuple[str, Path]]:
        """Our supervisor's links in `logs/` are followed, as long as they stay in the attempt's directory."""
        logs = self._attempt_dir / "logs"
        if not logs.is_dir():
            return
        for entry in sorted(logs.iterdir()):
            if entry.suffix in (".out", ".err"):
                source = Path(os.path.realpath(entry))
                if source.is_relative_to(self._attempt_dir):
                    yield f"logs/{entry.name}", source

    def _find_event_files(self) -> Iterator[tuple[Path, Path]]:
        for root in self._roots:
            for source in find_event_files(root, prune=data_directory(self._attempt_dir)):
                if str(source) not in self._ignored or _inode(source) != self._ignored[str(source)]:
                    yield source, root

    def _see(self, path: str, source: Path) -> None:
        """Notices a new file, a grown one, and a truncated or replaced one (a new generation)."""
        try:
            status = source.lstat()
        except OSError:
            return
        if not stat.S_ISREG(status.st_mode):
            return
        file = self._known.get(path)
        if file is None:
            file = self._first_sight(path, source, status.st_ino)
        if file.inode != status.st_ino or status.st_size < file.size_bytes:
            self._renew(file, status.st_ino)
        file.source, file.size_bytes = source, status.st_size

    def _first_sight(self, path: str, source: Path, inode: int) -> MirroredFile:
        file = self._remembered.pop(path, None) or MirroredFile(path, source, inode)
        self._known[path] = file
        self._order.append(path)
        return file

    def _renew(self, file: MirroredFile, inode: int) -> None:
        file.inode, file.head, file.sent_bytes = inode, b"", None
        file.unreadable_size_bytes = file.refusal = None
        file.generation += 1
        self._write_notes()

    # -- sending -------------------------------------------------------------------------------

    def _unsent(self, file: MirroredFile) -> int:
        if not file.size_bytes or file.size_bytes == file.unreadable_size_bytes or file.refusal:
            return 0
        end = min(file.size_bytes, self._cap_bytes)
        if file.size_bytes > self._cap_bytes:
            end += len(self._marker(file))
        return max(0, end - (file.sent_bytes or 0))

    def _send_piece(self, file: MirroredFile) -> int:
        offset, most = self._agreed_offset(file), self._most(CHUNK_BYTES)
        while data := self._read(file, offset, most):
            try:
                file.sent_bytes = self._send(file.path, file.generation, offset, data)
                return len(data)
            except OffsetMismatch as mismatch:
                self._accept(file, mismatch.have)
                return 0
            except RequestRefused as refusal:
                most = len(data) // 2
                if not isinstance(refusal, TooLarge) or most < LEAST_BYTES:
                    self._set_aside(file, offset, refusal)
                    return 0
        return 0

    def _set_aside(self, file: MirroredFile, offset: int, refusal: RequestRefused) -> None:
        """An attempt's end must not wait for what will never be taken."""
        file.refusal = f"{file.path} was refused at byte {offset}: {refusal}"
        log.error("%s; the rest of it is not copied, it stays at %s", file.refusal, file.source)

    def _agreed_offset(self, file: MirroredFile) -> int:
        while file.sent_bytes is None:
            self._accept(file, self._offset_of(file.path, file.generation))
        return file.sent_bytes

    def _accept(self, file: MirroredFile, have: int) -> None:
        """Goes on where the server is; when it has more than the file, the file is not the one it knew."""
        if have > self._cap_bytes + len(self._marker(file)):
            raise RequestFailed(f"{file.path}: {have} bytes are more than any server was ever sent")
        if have > file.size_bytes and have <= self._cap_bytes:
            self._renew(file, file.inode)
        else:
            file.sent_bytes = have

    def _read(self, file: MirroredFile, offset: int, most: int) -> bytes:
        if offset >= self._cap_bytes:
            return self._marker(file)[offset - self._cap_bytes :][:most]
        try:
            fd = os.open(file.source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                return self._read_same(fd, file, min(most, self._cap_bytes - offset), offset)
            finally:
                os.close(fd)
        except OSError as error:  # gone, forbidden or broken: an attempt's end must not wait for it
            log.warning("%s: %d bytes are lost: %s", file.source, file.size_bytes - offset, error.strerror)
            file.unreadable_size_bytes = file.size_bytes
            return b""

    def _read_same(self, fd: int, file: MirroredFile, size: int, offset: int) -> bytes:
        """The bytes at `offset`, unless the file is another one by now: then it begins anew next time."""
        head = os.pread(fd, HEAD_BYTES, 0)
        if os.fstat(fd).st_ino != file.inode or head[: len(file.head)] != file.head:
            self._renew(file, os.fstat(fd).st_ino)
            return b""
        if len(file.head) < HEAD_BYTES and head != file.head:
            file.head = head
            self._write_notes()
        return os.pread(fd, size, offset)

    def _marker(self, file: MirroredFile) -> bytes:
        """Says where the rest is. Fixed text: it can be resumed like any other bytes."""
        if not file.is_log:
            return b""
        return (
            f"\n[rankzero] This log is longer than {self._cap_bytes} bytes. What follows is not copied here; "
            f"the whole file stays on the node: {self._attempt_dir / file.path}\n"
        ).encode(errors="replace")

    # -- what a restarted worker must know -----------------------------------------------------

    def _read_notes(self) -> dict[str, MirroredFile]:
        try:
            notes = json.loads(self._notes.read_text())
            return {
                path: MirroredFile(
                    path, Path(), note["inode"], note["generation"], bytes.fromhex(note["head"])
                )
                for path, note in notes.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write_notes(self) -> None:
        files = {**self._remembered, **self._known}
        notes = {
            path: {"inode": file.inode, "generation": file.generation, "head": file.head.hex()}
            for path, file in files.items()
        }
        try:
            self._notes.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._notes.with_suffix(".tmp")
            fresh.write_text(json.dumps(notes))
            fresh.replace(self._notes)
        except OSError as error:  # a full disk: mirroring goes on, and frees nothing by stopping
            log.warning("%s could not be written: %s", self._notes, error.strerror)


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None
