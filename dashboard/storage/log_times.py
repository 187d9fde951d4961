"""Times of arrival of a stored log: a small file beside it, 16 bytes per stretch, by the server's clock."""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

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
