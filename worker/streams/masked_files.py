"""Read mirrored files with the values of secrets masked, whatever chunks they are read in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from domain.masking.values import ValueMask
from worker.node.holes import data_after
from worker.node.run_files import is_event_file
from worker.streams.events import AROUND_BYTES, CHECKSUM, HEADER, MAX_RECORD_BYTES, has_header, masked_crc, next_header

BLOCK_BYTES = 1024 * 1024
MOST_BYTES_AT_ONCE = 64 * BLOCK_BYTES
"""Of one value after another without anything between them."""


class MaskedFile:
    """One generation of one file. Each byte stays at its offset; the end waits while it may begin a value."""

    def __init__(self, mask: ValueMask, *, has_events: bool, start: int = 0) -> None:
        """`start`: the first byte that is ever read."""
        self._mask, self._events = mask, MaskedEvents(mask, start) if has_events else None

    def read(self, descriptor: int, offset: int, size: int, *, final: bool) -> bytes:
        """Up to `size` bytes at `offset`; fewer, or none, while the writer may continue. Raises OSError.

        `final`: the writer has ended."""
        if not self._mask:
            return os.pread(descriptor, size, offset)
        if self._events is not None:
            return self._events.read(descriptor, offset, size, final=final)
        return masked_bytes(descriptor, offset, size, self._mask, final=final)


def masked_bytes(descriptor: int, offset: int, size: int, mask: ValueMask, *, final: bool) -> bytes:
    """Bytes of a file as they are when all of it is masked. Raises OSError."""
    margin = mask.longest - 1
    begin = max(0, offset - margin)
    length = offset - begin + size + margin
    content = os.pread(descriptor, length, begin)
    end = len(content)
    if end < length and not final:
        end -= mask.open_end(content)
    return mask.content(content)[offset - begin : min(end, offset - begin + size)]


def mask_in_place(path: Path, mask: ValueMask) -> None:
    """Write the masked bytes over a file's own where they differ; its writers have ended. Raises OSError.

    Holes stay holes. Whenever this process is killed, doing it again masks the rest."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if _overwritten(descriptor, mask, has_events=is_event_file(path.name)):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _overwritten(descriptor: int, mask: ValueMask, *, has_events: bool) -> bool:
    """Overwrite what differs; True if anything did."""
    is_changed, offset, size = False, data_after(descriptor, 0), BLOCK_BYTES
    file = MaskedFile(mask, has_events=has_events, start=offset)
    while masked := file.read(descriptor, offset, size, final=True):
        plain = os.pread(descriptor, len(masked), offset)
        if masked != plain:
            end = _end_between_values(masked, plain)
            if not end and len(masked) == size < MOST_BYTES_AT_ONCE:
                size *= 2
                continue
            masked = masked[: end or None]
            os.pwrite(descriptor, masked.rstrip(b"\0"), offset)
            is_changed = True
        size, behind, offset = BLOCK_BYTES, offset + len(masked), data_after(descriptor, offset + len(masked))
        if offset > behind:
            file = MaskedFile(mask, has_events=has_events, start=offset)
    return is_changed


def _end_between_values(masked: bytes, plain: bytes) -> int:
    """The end of the bytes before a value that may go on behind them: half of one would not be recognized again."""
    end = len(masked)
    while end and (masked[end - 1] == ord("*") or masked[end - 1] != plain[end - 1]):
        end -= 1
    return end


class MaskedEvents:
    """An event file, whose records get the checksums of what is in them once it is masked.

    A record waits until all of it is written. It is read in blocks of whole records, the last of which is kept."""

    def __init__(self, mask: ValueMask, start: int = 0) -> None:
        self._mask = mask
        self._start, self._block = start, b""
        self._plain_until = 0
        """The end of a record too long to be held in memory: its bytes are masked, its checksum is not."""

    def read(self, descriptor: int, offset: int, size: int, *, final: bool) -> bytes:
        """Up to `size` bytes at `offset`. Raises OSError."""
        if offset < self._start:  # the server has lost some
            self._start, self._block, self._plain_until = 0, b"", 0
        while offset >= (end := self._start + len(self._block)):
            block = self._block_at(descriptor, end, final=final)
            if not block:
                return b""
            self._start, self._block = end, block
        return self._block[offset - self._start :][:size]

    def _block_at(self, descriptor: int, start: int, *, final: bool) -> bytes:
        """The next masked records, or damaged bytes between them; none while they are incomplete."""
        if start < self._plain_until:
            size = min(BLOCK_BYTES, self._plain_until - start)
            return masked_bytes(descriptor, start, size, self._mask, final=final)
        content = os.pread(descriptor, BLOCK_BYTES, start)
        if len(content) >= HEADER.size and has_header(content, 0):
            record_bytes = HEADER.unpack_from(content)[0] + AROUND_BYTES
            if record_bytes > MAX_RECORD_BYTES:
                self._plain_until = start + record_bytes
                return self._block_at(descriptor, start, final=final)
            if record_bytes > len(content):
                content = os.pread(descriptor, record_bytes, start)
        if end := _end_of_records(content):
            return self._with_checksums(content[:end])
        return self._damaged(descriptor, start, content, final=final)

    def _damaged(self, descriptor: int, start: int, content: bytes, *, final: bool) -> bytes:
        """The bytes before the next record; none while it may be an incomplete one."""
        if not final and (len(content) < HEADER.size or has_header(content, 0) or not content.rstrip(b"\0")):
            return b""
        following = next_header(content, 1)
        if following is None:
            is_all = final and len(content) < BLOCK_BYTES
            following = len(content) if is_all else max(1, len(content) - HEADER.size + 1)
        return masked_bytes(descriptor, start, following, self._mask, final=final)

    def _with_checksums(self, content: bytes) -> bytes:
        if self._mask.content(content) is content:
            return content
        return b"".join(_masked_record(record, self._mask) for record in _records(content))


def _end_of_records(content: bytes) -> int:
    """The end of the whole records with which the bytes begin."""
    return max((end for _, end in _spans(content)), default=0)


def _records(content: bytes) -> Iterator[bytes]:
    yield from (content[begin:end] for begin, end in _spans(content))


def _spans(content: bytes) -> Iterator[tuple[int, int]]:
    begin = 0
    while begin + HEADER.size <= len(content) and has_header(content, begin):
        end = begin + HEADER.unpack_from(content, begin)[0] + AROUND_BYTES
        if end > len(content):
            return
        yield begin, end
        begin = end


def _masked_record(record: bytes, mask: ValueMask) -> bytes:
    """The record with its data masked; a checksum that was right is right again."""
    data, checksum = record[HEADER.size : -CHECKSUM.size], record[-CHECKSUM.size :]
    masked = mask.content(data)
    if masked is not data and CHECKSUM.unpack(checksum)[0] == masked_crc(data):
        checksum = CHECKSUM.pack(masked_crc(masked))
    return record[: HEADER.size] + masked + checksum
