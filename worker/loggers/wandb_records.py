"""Read the records of W&B's `.wandb` files: LevelDB's log format around protobuf messages, without the package."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from worker.streams.events import Gap
from worker.streams.protobuf_schema import message_class

BLOCK_BYTES = 32 * 1024
IDENT_BYTES = 7
"""At the beginning of the file: `:W&B` and a version."""
HEADER = struct.Struct("<IHB")
"""Of a chunk: CRC-32 of its kind and data, length of the data, kind."""
DAMAGED, WHOLE, FIRST, LAST = 0, 1, 2, 4
"""Kinds of chunks: no chunk, all of a record, its beginning, its end; 3 is what lies between."""
_KINDS = re.compile(rb"[\1-\4]")
FIELDS = {
    "Record": "history:2:History summary:3:Items config:5:Items metric:12:Metric run:17:Run exit:18:Exit",
    "History": "item:1:Item* step:2:Step",
    "Items": "update:1:Item*",
    "Item": "key:1 nested_key:2:* boolean:4:bool integer:5:sint64 number:6:double text:7 json:8 value_json:16",
    "Step": "num:1:int64",
    "Metric": "name:1 glob_name:2 step_metric:4",
    "Run": "run_id:1 project:3 config:4:Items summary:5:Items display_name:8 notes:9 tags:10:* start_time:17:Time",
    "Time": "seconds:1:int64 nanos:2:int32",
    "Exit": "exit_code:1:int32",
}
"""What is read of `wandb_internal.proto`."""


def records(file: Path, offset: int = 0, lost: Callable[[Gap], object] = lambda gap: None) -> Iterator[tuple[int, Any]]:
    """Yield (offset behind it, record) of the complete records whose checksums are valid, from an offset on.

    `lost` gets the bytes that gave none, also those of an unfinished record at the end. Raises OSError."""
    with file.open("rb") as content:
        for start, end, data in _payloads(_chunks(content, max(offset, IDENT_BYTES))):
            record = None if data is None else _decoded(data)
            if record is not None:
                yield end, record
            else:
                lost(Gap(start, end, "damaged" if end < content.seek(0, os.SEEK_END) else "unfinished"))


def _decoded(data: bytes) -> Any:
    try:
        return _Record.FromString(data)
    except DecodeError:
        return None


class _Chunk(NamedTuple):
    start: int
    end: int
    kind: int
    data: bytes


def _payloads(chunks: Iterator[_Chunk]) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield (start, end, bytes) of each record, which may lie in several chunks; no bytes for what is lost."""
    parts, begin, end = list[bytes](), 0, 0
    for chunk in chunks:
        begins = chunk.kind in (WHOLE, FIRST)
        if parts and begins:
            yield begin, chunk.start, None
            parts = []
        if chunk.kind == DAMAGED or not (begins or parts):
            yield begin if parts else chunk.start, chunk.end, None
            parts = []
            continue
        begin, end = begin if parts else chunk.start, chunk.end
        parts.append(chunk.data)
        if chunk.kind in (WHOLE, LAST):
            yield begin, end, b"".join(parts)
            parts = []
    if parts:
        yield begin, end, None


def _chunks(content: BinaryIO, position: int) -> Iterator[_Chunk]:
    """Yield the chunks, none of which crosses the border of a block, and what lies between them as damaged.

    What is left at the end of the file is damaged, or has not been written yet."""
    while True:
        content.seek(position)
        block = content.read(BLOCK_BYTES - position % BLOCK_BYTES)
        if not block:
            return
        at = 0
        while at < len(block) and (found := _next_chunk(block, at)) is not None:
            if found.start > at:
                yield _Chunk(position + at, position + found.start, DAMAGED, b"")
            yield _Chunk(position + found.start, position + found.end, found.kind, found.data)
            at = found.end
        is_full = (position + len(block)) % BLOCK_BYTES == 0
        is_padding = is_full and len(block) - at < HEADER.size and not any(block[at:])
        position += len(block)
        if at < len(block) and not is_padding:
            yield _Chunk(position - len(block) + at, position, DAMAGED, b"")


def _next_chunk(block: bytes, begin: int) -> _Chunk | None:
    """Return the first whole chunk of a block from a position on: the next one unless that is damaged."""
    for match in _KINDS.finditer(block, begin + HEADER.size - 1):
        start = match.start() - HEADER.size + 1
        checksum, length, kind = HEADER.unpack_from(block, start)
        end = start + HEADER.size + length
        if end <= len(block) and zlib.crc32(block[start + HEADER.size - 1 : end]) == checksum:
            return _Chunk(start, end, kind, block[start + HEADER.size : end])
    return None


_Record = message_class(FIELDS, "Record")
