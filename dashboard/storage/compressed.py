"""Logs and event files of ended runs, compressed: FILE.gz in the place of FILE, readable by any gzip program.

Each block of the content is a gzip member; a last, empty one has their offsets and the sizes in its extra field, by
which any byte is found. Names alone tell which form a file has: where both exist, FILE is whole, and it counts."""

from __future__ import annotations

import errno
import gzip
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from dashboard.private_files import sync_folder

BLOCK_BYTES = 64 * 1024
"""Content of a member; more where a file would have more than MOST_BLOCKS of them."""
MOST_BLOCKS = 8000
"""Their offsets fit into one extra field, which has at most 64 KiB."""


def compressed_path(path: Path) -> Path:
    """The compressed form of a file."""
    return path.with_name(f"{path.name}.gz")


def partial_path(path: Path) -> Path:
    """A file's other form while it is written."""
    return path.with_name(f"{path.name}.gz.part")


def read(path: Path, offset: int, limit: int) -> bytes:
    """Return bytes of a file's content, in whatever form it is; none where it does not exist. Raises OSError."""
    for _ in range(2):  # between the two looks of the first turn it may have been unpacked
        with suppress(FileNotFoundError), path.open("rb") as file:
            return os.pread(file.fileno(), limit, offset)
        with suppress(FileNotFoundError), compressed_path(path).open("rb") as file:
            return CompressedFile(file).read(offset, limit)
    return b""


def content_bytes(path: Path) -> int:
    """Return the size of a file's content, in whatever form it is; 0 where it is missing or cannot be read."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    try:
        with compressed_path(path).open("rb") as file:
            return CompressedFile(file).size_bytes
    except OSError:
        return 0


def unpack(path: Path, target: Path, partial: Path) -> None:
    """Write the content of the compressed form of `path` durably to `target`, first as `partial`. Raises OSError."""
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with compressed_path(path).open("rb") as source, os.fdopen(descriptor, "wb") as writing:
            for block in CompressedFile(source).blocks():
                writing.write(block)
            writing.flush()
            os.fsync(writing.fileno())
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(target.parent)


class CompressedFile:
    """The compressed form of a file, opened."""

    def __init__(self, file: BinaryIO) -> None:
        """Raises OSError where it is not whole."""
        self._descriptor = file.fileno()
        sizes_at = os.fstat(self._descriptor).st_size - len(_EMPTY) - _SIZES.size
        if sizes_at < 0:
            raise _damaged()
        sizes: tuple[int, int, int] = _SIZES.unpack(self._bytes(sizes_at, _SIZES.size))
        self.size_bytes, self._block_bytes, self._count = sizes
        self._index = sizes_at - (self._count + 1) * _OFFSET_BYTES
        header = _header(self._count) if self._count <= MOST_BLOCKS else b""
        if self._index < _HEADER_BYTES or self._bytes(self._index - _HEADER_BYTES, _HEADER_BYTES) != header:
            raise _damaged()

    def read(self, offset: int, limit: int) -> bytes:
        """Return at most so many bytes of the content. Raises OSError."""
        end = min(offset + limit, self.size_bytes)
        if offset >= end:
            return b""
        first = offset // self._block_bytes
        content = b"".join(self.blocks(first, (end - 1) // self._block_bytes + 1))
        start = offset - first * self._block_bytes
        return content[start : start + end - offset]

    def blocks(self, first: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the content of the members from `first` to before `end`. Raises OSError."""
        end = self._count if end is None else end
        length = (end - first + 1) * _OFFSET_BYTES
        bounds = struct.unpack(f"<{end - first + 1}Q", self._bytes(self._index + first * _OFFSET_BYTES, length))
        for begin, behind in pairwise(bounds):
            try:
                yield gzip.decompress(self._bytes(begin, behind - begin))
            except (EOFError, zlib.error):
                raise _damaged() from None

    def _bytes(self, offset: int, length: int) -> bytes:
        content = os.pread(self._descriptor, length, offset)
        if len(content) != length:
            raise _damaged()
        return content


def pack(source: BinaryIO, target: BinaryIO, size_bytes: int) -> Iterator[int]:
    """Write the first bytes of a file durably in compressed form; yields the bytes of each block. Raises OSError."""
    block_bytes = _block_bytes(size_bytes)
    bounds = [0]
    for offset in range(0, size_bytes, block_bytes):
        content = os.pread(source.fileno(), min(block_bytes, size_bytes - offset), offset)
        bounds.append(bounds[-1] + target.write(gzip.compress(content, mtime=0)))
        yield len(content)
    target.write(_index(bounds, size_bytes, block_bytes))
    target.flush()
    os.fsync(target.fileno())


def verify(source: BinaryIO, target: BinaryIO, size_bytes: int) -> Iterator[int]:
    """Read the compressed form back from the disk and compare it; yields the bytes of each block. Raises OSError."""
    if sys.platform == "linux":
        os.posix_fadvise(target.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    packed, offset = CompressedFile(target), 0
    for block in packed.blocks():
        if block != os.pread(source.fileno(), len(block), offset):
            raise _damaged()
        offset += len(block)
        yield len(block)
    if not offset == packed.size_bytes == size_bytes:
        raise _damaged()


def _block_bytes(size_bytes: int) -> int:
    block_bytes = BLOCK_BYTES
    while block_bytes * MOST_BLOCKS < size_bytes:
        block_bytes *= 2
    return block_bytes


_SIZES = struct.Struct("<QQQ")
"""Bytes of the content and of a block, and the number of blocks; before them the bounds of all members."""
_OFFSET_BYTES = 8
_HEADER_BYTES = 16
_EMPTY = b"\x03\x00" + bytes(8)
"""The end of a gzip member without content: its only block, CRC and size."""


def _header(count: int) -> bytes:
    """The begin of the last member: of gzip's header (RFC 1952) and of the one subfield of its extra field."""
    length = (count + 1) * _OFFSET_BYTES + _SIZES.size
    return b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H2sH", length + 4, b"RZ", length)


def _index(bounds: list[int], size_bytes: int, block_bytes: int) -> bytes:
    count = len(bounds) - 1
    sizes = _SIZES.pack(size_bytes, block_bytes, count)
    return _header(count) + struct.pack(f"<{len(bounds)}Q", *bounds) + sizes + _EMPTY


def _damaged() -> OSError:
    return OSError(errno.EIO, "A compressed log or event file is damaged: restore it from a backup.")
