"""Read the records of W&B's `.wandb` files: LevelDB's log format around protobuf messages, without the package."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

BLOCK_BYTES = 32 * 1024
IDENT_BYTES = 7
"""At the beginning of the file: `:W&B` and a version."""
HEADER = struct.Struct("<IHB")
"""Of a chunk: CRC-32 of its kind and data, length of the data, kind."""
DAMAGED, WHOLE, FIRST, LAST = 0, 1, 2, 4
"""Kinds of chunks: no chunk, all of a record, its beginning, its end; 3 is what lies between."""
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
"""What is read of `wandb_internal.proto`, as NAME:NUMBER:TYPE; by default a text, with * repeated."""


def records(file: Path, offset: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield (offset behind it, record) of the complete records whose checksums are valid, from an offset on.

    A record that is still being written ends the iteration. Raises OSError.
    """
    with file.open("rb") as content:
        for end, data in _payloads(_chunks(content, max(offset, IDENT_BYTES))):
            with suppress(DecodeError):
                yield end, _Record.FromString(data)


def _payloads(chunks: Iterator[tuple[int, int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of each record, which may lie in several chunks; one with a damaged chunk is left out."""
    parts: list[bytes] | None = None
    for end, kind, data in chunks:
        if kind in (WHOLE, FIRST):
            parts = []
        if kind == DAMAGED or parts is None:
            parts = None
            continue
        parts.append(data)
        if kind in (WHOLE, LAST):
            yield end, b"".join(parts)
            parts = None


def _chunks(content: BinaryIO, position: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset behind it, kind, data) of each chunk; none crosses the border of a block."""
    content.seek(position)
    while block := content.read(BLOCK_BYTES - position % BLOCK_BYTES):
        may_grow, at = (position + len(block)) % BLOCK_BYTES != 0, 0
        while at + HEADER.size <= len(block):
            checksum, length, kind = HEADER.unpack_from(block, at)
            data = block[at + HEADER.size : at + HEADER.size + length]
            at += HEADER.size + length
            is_valid = zlib.crc32(bytes([kind]) + data) == checksum
            if not is_valid and may_grow and at >= len(block):
                return  # its last bytes have not been written yet
            yield position + min(at, len(block)), kind if is_valid else DAMAGED, data
        position += len(block)


def _messages() -> Any:
    """The class of `Record`, with the messages in it."""
    schema = descriptor_pb2.FileDescriptorProto(name="rankzero_wandb.proto", package="rankzero_wandb")
    for name, fields in FIELDS.items():
        message = schema.message_type.add(name=name)
        for text in fields.split():
            field, number, kind = [*text.split(":"), ""][:3]
            _add_field(message, field, int(number), kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("rankzero_wandb.Record"))


def _add_field(message: Any, name: str, number: int, kind: str) -> None:
    types = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(name=name, number=number, label=types.LABEL_OPTIONAL)
    if kind.endswith("*"):
        field.label, kind = types.LABEL_REPEATED, kind[:-1]
    if kind in FIELDS:
        field.type, field.type_name = types.TYPE_MESSAGE, f".rankzero_wandb.{kind}"
    else:
        field.type = types.Type.Value(f"TYPE_{(kind or 'string').upper()}")


_Record = _messages()
