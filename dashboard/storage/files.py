"""The server's files: mirrored logs (with the times at which they arrived) and event files, and checkpoints."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import shutil
import struct
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dashboard.errors import Rejection
from dashboard.private_files import make_private_directory, write_private
from dashboard.storage.compressed import compressed_path, partial_path, read, unpack
from domain.text.formats import size


class Files:
    """Everything below DATA/files; names on disk are ids, never names given by users."""

    def __init__(self, root: Path, reserve_bytes: int, name: str = "") -> None:
        """`name` distinguishes dashboards that share the folder."""
        self.root = root
        self.checkpoints = root / "checkpoints"
        self.incoming = root / "incoming"
        self._reserve_bytes = reserve_bytes
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._checkpoint_locks = [threading.Lock() for _ in range(_LOCKS)]
        for directory in (root, self.checkpoints, self.incoming):
            make_private_directory(directory)
        discard(root / "converted")  # of versions whose server converted checkpoints
        self._proof = secrets.token_hex(16)
        self._proof_file = self.incoming / f"proof{name}"
        self._has_proof = False
        self._prove()

    def adoption(self) -> AdoptedFile:
        """The proof by which a worker finds out that it shares this disk; one that cannot read it sends all bytes."""
        self._prove()
        return AdoptedFile(str(self.incoming), str(self._proof_file), self._proof)

    def _prove(self) -> None:
        """Write the proof once; on a full disk the next worker's request tries again."""
        if not self._has_proof:
            with suppress(OSError):
                write_private(self._proof_file, self._proof)
                self._has_proof = True

    @contextmanager
    def locked(self, *keys: object) -> Iterator[None]:
        """Hold the files' locks: one thread at a time for each key."""
        with ExitStack() as held:
            for number in sorted({hash(key) % _LOCKS for key in keys}):  # in one order everywhere
                held.enter_context(self._locks[number])
            yield

    @contextmanager
    def locked_checkpoint(self, checkpoint_id: int) -> Iterator[None]:
        """Hold the checkpoint's lock, of a separate set: no log waits for a checkpoint being read or uploaded."""
        with self._checkpoint_locks[checkpoint_id % _LOCKS]:
            yield

    def mirrored(self, file_id: int) -> Path:
        """The path of a mirrored log or event file, where it is not compressed (`dashboard.storage.compressed`)."""
        return self.root / str(file_id)

    def arrivals(self, file_id: int) -> Path:
        """The path of a log's times of arrival."""
        return self.root / f"{file_id}.times"

    def append(self, file_id: int, offset: int, content: bytes) -> None:
        """Write bytes durably at an offset; anything that a crash left behind it is overwritten.

        A file that was compressed meanwhile is unpacked first."""
        path = self.mirrored(file_id)
        if offset and not path.exists() and compressed_path(path).exists():
            unpack(path, path, partial_path(path))
            compressed_path(path).unlink()
        write(path, offset, content)
        sync(path)

    def read(self, file_id: int, offset: int, limit: int) -> bytes:
        """Bytes of a mirrored file; empty when it does not exist."""
        return read(self.mirrored(file_id), offset, limit)

    def arrival_times(self, file_id: int, size_bytes: int) -> ArrivalTimes:
        """The times of arrival of a log of this size."""
        path = self.arrivals(file_id)
        return ArrivalTimes(partial(_read, path), count_notes(path), size_bytes)

    def checkpoint(self, checkpoint_id: int) -> Path:
        """The path of a complete checkpoint."""
        return self.checkpoints / str(checkpoint_id)

    def arriving(self, checkpoint_id: int) -> Path:
        """The path of a checkpoint while it is uploaded."""
        return self.incoming / f"{checkpoint_id}.part"

    def require_free_space(self, size_bytes: int) -> None:
        """Raises Rejection when the bytes would not fit on the disk beside the reserve for the store."""
        free_bytes = self.free_bytes()
        if size_bytes > free_bytes:
            raise Rejection(
                507,
                f"The server's disk has {free_in_words(free_bytes)} free beyond a reserve of "
                f"{size(self._reserve_bytes)}; {size(size_bytes)} do not fit. "
                "Free some space there; the upload then continues automatically.",
            )

    def free_bytes(self) -> int:
        """Free bytes on the disk beyond the reserve; negative when less than the reserve is free."""
        return shutil.disk_usage(self.root).free - self._reserve_bytes

    def remove(self, file_ids: Iterable[int], checkpoint_ids: Iterable[int]) -> None:
        """Delete these files, and these checkpoints."""
        for file_id in file_ids:
            path = self.mirrored(file_id)
            for form in (path, compressed_path(path), partial_path(path)):
                form.unlink(missing_ok=True)
            self.arrivals(file_id).unlink(missing_ok=True)
        for checkpoint_id in checkpoint_ids:
            self.checkpoint(checkpoint_id).unlink(missing_ok=True)
            self.arriving(checkpoint_id).unlink(missing_ok=True)


_LOCKS = 64


@dataclass(frozen=True)
class AdoptedFile:
    """The folder and proof with which a worker on the same disk hands over a snapshot without sending it."""

    directory: str
    proof_file: str
    proof: str


def free_in_words(free_bytes: int) -> str:
    """Return how much is free, never as a negative number: less than the reserve is nothing."""
    return size(free_bytes) if free_bytes > 0 else "nothing"


def discard(path: Path) -> None:
    """Delete a file or folder that may be gone already."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _read(path: Path, offset: int, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), limit, offset)
    except FileNotFoundError:
        return b""


BLOCK_BYTES = 4096
"""Past the page cache only whole blocks are written and read, from memory that begins at one (mmap)."""
DIRECT = getattr(os, "O_DIRECT", 0)


class Pieces:
    """Memory for pieces of files on their way, used again: this costs less than the memory of a new piece."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes, self._free = kept_bytes, list[mmap.mmap]()

    def take(self, size_bytes: int) -> mmap.mmap:
        """Memory of that size, which begins at a block; its content is anything."""
        for piece in self._free:
            if len(piece) == size_bytes:
                with suppress(ValueError):  # another thread took it
                    self._free.remove(piece)
                    return piece
        return mmap.mmap(-1, size_bytes)

    def give_back(self, view: memoryview) -> None:
        """Let others use the memory that the view shows; one that is never given back is freed like any other."""
        if isinstance(view.obj, mmap.mmap) and sum(map(len, self._free)) + len(view.obj) <= self._kept_bytes:
            self._free.append(view.obj)


pieces = Pieces(16 * 1024 * 1024)


def write_past_cache(path: Path, offset: int, content: memoryview) -> None:
    """Like `write`; whole blocks go straight to the disk where the file system can.

    New pages of the cache cost more processor time than everything else on a checkpoint's way, its hash included."""
    direct = len(content) // BLOCK_BYTES * BLOCK_BYTES if DIRECT and offset % BLOCK_BYTES == 0 else 0
    try:
        write(path, offset, content[:direct], DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        direct = 0
    if direct < len(content):
        write(path, offset + direct, content[direct:])


def write(path: Path, offset: int, content: bytes | bytearray | memoryview, flags: int = 0) -> None:
    """Write bytes at an offset; anything behind the offset is removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flags, 0o600)
    try:
        if os.fstat(descriptor).st_size > offset:
            os.ftruncate(descriptor, offset)
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
        if sys.platform == "linux" and not flags:  # the disk begins at once, so that `sync` has little left to wait for
            os.posix_fadvise(descriptor, offset - len(content), len(content), os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Make durable what was written to a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


# Times of arrival of a stored log: a small file beside it, 16 bytes per stretch, by the server's clock.

Read = Callable[[int, int], bytes]
"""(offset, limit) -> at most `limit` bytes from the offset on."""
_NOTE = struct.Struct("<QQ")
"""Offset behind the stretch, and its time of arrival in milliseconds since 1970; 0 when unknown."""
_BLOCK_NOTES = 256
_UNKNOWN = 0


def note_arrival(path: Path, start: int, end: int, at_ms: int) -> None:
    """Note that the bytes from `start` to `end` arrived at `at_ms`. One writer at a time.

    Notes of bytes that a crash or a restored store took back are dropped. A disk that takes no note delays no log."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            _add(descriptor, start, end, at_ms)
        finally:
            os.close(descriptor)


def _add(descriptor: int, start: int, end: int, at_ms: int) -> None:
    count = os.fstat(descriptor).st_size // _NOTE.size
    while count and _note(descriptor, count - 1)[0] > start:
        count -= 1
    before, before_ms = _note(descriptor, count - 1) if count else (0, _UNKNOWN)
    os.ftruncate(descriptor, count * _NOTE.size)
    unnoted = _NOTE.pack(start, before_ms) if before < start else b""
    # A clock that was set back must not put a log's later lines before its earlier ones.
    notes = unnoted + _NOTE.pack(end, max(at_ms, before_ms))
    os.pwrite(descriptor, notes, count * _NOTE.size)


def _note(descriptor: int, index: int) -> tuple[int, int]:
    end, at_ms = _NOTE.unpack(os.pread(descriptor, _NOTE.size, index * _NOTE.size))
    return end, at_ms


class ArrivalTimes:
    """The stretches of a log, numbered from 0, with end and time; the last one covers bytes without a note."""

    def __init__(self, read: Read, notes: int, size_bytes: int) -> None:
        """`read` reads the file of `notes` notes; `size_bytes` is the log's own size."""
        self._read, self._notes, self._size_bytes = read, notes, size_bytes
        self._blocks: dict[int, list[tuple[int, int]]] = {}

    def begin(self, index: int) -> int:
        """Offset of the stretch's first byte."""
        return self.end(index - 1) if index else 0

    def end(self, index: int) -> int:
        """Offset behind the stretch."""
        return min(self._note(index)[0], self._size_bytes) if index < self._notes else self._size_bytes

    def at_ms(self, index: int) -> int:
        """Time of arrival of the stretch, in milliseconds since 1970; 0 when unknown."""
        if index < self._notes:
            return self._note(index)[1]
        return self._note(self._notes - 1)[1] if self._notes else _UNKNOWN

    def index_of(self, offset: int) -> int:
        """The number of the stretch that contains the byte at an offset."""
        return bisect_left(range(self._notes), offset + 1, key=self.end)

    def end_before(self, at_ms: int) -> int:
        """Offset behind the last stretch that arrived before a time in milliseconds."""
        return self.begin(bisect_left(range(self._notes + 1), at_ms, key=self.at_ms))

    def _note(self, index: int) -> tuple[int, int]:
        block, within = divmod(index, _BLOCK_NOTES)
        if block not in self._blocks:
            length = _BLOCK_NOTES * _NOTE.size
            content = self._read(block * length, length)
            whole = len(content) // _NOTE.size * _NOTE.size
            self._blocks[block] = list(_NOTE.iter_unpack(content[:whole]))
        notes = self._blocks[block]
        # The note was dropped meanwhile: only the log's end is known.
        return notes[within] if within < len(notes) else (self._size_bytes, _UNKNOWN)


def count_notes(path: Path) -> int:
    """The number of stretches with a note; 0 for a log stored before there were notes."""
    try:
        return path.stat().st_size // _NOTE.size
    except FileNotFoundError:
        return 0
