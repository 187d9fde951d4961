"""TensorBoard event files become points: whole records only, whatever the file looks like."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tensorboard.compat.proto import event_pb2, types_pb2

from db.states import Point
from worker.walk import is_event_file, walk_files

MAX_FILES = 2000
MAX_RECORD_BYTES = 64 * 1024 * 1024
"""A longer record (a video, a graph) holds no scalar worth its memory: it is stepped over unread."""


def find_event_files(root: Path, prune: Path | None = None) -> list[Path]:
    """Event files below `root`, the earliest created first; links are not followed."""
    found = islice(walk_files(root, is_event_file, prune), MAX_FILES)
    return sorted((Path(entry.path) for entry in found), key=_created)


def main_writer_dir(files: Iterable[Path]) -> Path | None:
    """The directory whose tags keep their plain names: where the first event file was created."""
    first = min(files, key=_created, default=None)
    return first.parent if first else None


def series_name(tag: str, writer_dir: str, main_dir: str) -> str:
    """The tag alone for the main writer, `DIR:tag` for further ones; DIR inside the main one is cut short."""
    if writer_dir == main_dir:
        return tag
    return f"{writer_dir.removeprefix(f'{main_dir}/')}:{tag}"


@dataclass(frozen=True)
class EventBytes:
    """What stands in the bytes from `start` to `end` of an event file."""

    start: int
    end: int
    series: dict[str, list[Point]] = field(default_factory=dict)
    """Tag -> points, in the file's order."""
    notice: str | None = None
    """One sentence when something was skipped."""


class EventTail:
    """Reads an event file from where it stopped; a record that is not whole yet is read next time."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset

    def read(self, max_bytes: int = 4 * 1024 * 1024) -> EventBytes:
        """The next whole records, about `max_bytes` of them; `offset` moves behind them."""
        start = self.offset
        try:
            buffer, size = self._bytes_from(start, max_bytes)
        except OSError as error:
            return EventBytes(start, start, notice=f"{self.path.name} could not be read: {error.strerror}")
        read = _Reading(self.path.name, start, size, buffer).read()
        self.offset = read.end
        return read

    def _bytes_from(self, start: int, max_bytes: int) -> tuple[bytes, int]:
        """The bytes at `start`, more than asked for when one record is longer, and the file's size."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            buffer = os.pread(fd, max(max_bytes, _HEADER.size), start)
            if len(buffer) >= _HEADER.size:
                record_bytes = _HEADER.size + _HEADER.unpack_from(buffer)[0] + _FOOTER_BYTES
                if len(buffer) < record_bytes <= min(size - start, MAX_RECORD_BYTES):
                    buffer = os.pread(fd, record_bytes, start)
            return buffer, size
        finally:
            os.close(fd)


def _created(path: Path) -> tuple[int, int, str]:
    """Writers put the second of creation into the name; file times change with every record.

    Of one second's, the outer folder's: a writer makes another one below its own for add_hparams and add_scalars.
    """
    match = re.search(r"tfevents\.(\d{9,11})\.", path.name)
    return (int(match[1]) if match else 1 << 62, len(path.parts), str(path))


# A record: length (8 bytes), masked CRC of these 8, the Event, masked CRC of the Event.
_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4


class _Reading:
    """One pass over the bytes of a file of `size` bytes that were read at `start`."""

    def __init__(self, name: str, start: int, size: int, buffer: bytes) -> None:
        self.name, self.start, self.size, self.buffer = name, start, size, buffer
        self.series: dict[str, list[Point]] = {}
        self.notice: str | None = None

    def read(self) -> EventBytes:
        """Checksums cost three times the parsing: they are looked at only when something does not fit."""
        buffer, available, position = self.buffer, len(self.buffer), 0
        unpack, decode, keep = _HEADER.unpack_from, event_pb2.Event.FromString, self._keep
        while position + 12 <= available:
            length, length_crc = unpack(buffer, position)
            after = position + 16 + length
            if after > available or length == 0:
                return self._stop(position, length, length_crc)
            try:
                event = decode(buffer[position + 12 : after - 4])
            except DecodeError:
                if masked_crc(buffer[position : position + 8]) != length_crc:
                    return self._stop(position, length, length_crc)
                self.notice = (
                    f"{self.name}: the record at byte {self.start + position} is damaged; skipped it"
                )
            else:
                keep(event)
            position = after
        return self._up_to(self.start + position)

    def _keep(self, event: Any) -> None:
        step, wall_time, series = event.step, event.wall_time, self.series
        for value in event.summary.value:
            kind = value.WhichOneof("value")
            if kind == "simple_value":
                number: float | None = value.simple_value
            elif kind == "tensor" and value.metadata.plugin_data.plugin_name in ("", "scalars"):
                number = _tensor_scalar(value.tensor)
            else:
                continue
            if number is not None:
                series.setdefault(value.tag, []).append((step, number, wall_time))

    def _stop(self, position: int, length: int, length_crc: int) -> EventBytes:
        """The record is torn (wait for the rest), larger than we hold, or no record at all."""
        at = self.start + position
        if length == 0 or masked_crc(self.buffer[position : position + 8]) != length_crc:
            # Nothing says where the next record begins, so what is there by now is given up.
            self.notice = f"{self.name} is damaged at byte {at}: skipped the rest, to byte {self.size}"
            return self._up_to(max(self.size, at))
        if length > MAX_RECORD_BYTES and at + 16 + length <= self.size:
            self.notice = f"{self.name}: skipped a record of {length} bytes at byte {at}"
            return self._up_to(at + 16 + length)
        return self._up_to(at)

    def _up_to(self, end: int) -> EventBytes:
        return EventBytes(self.start, end, self.series, self.notice)


_CONTENT = {
    types_pb2.DT_FLOAT: "<f",
    types_pb2.DT_DOUBLE: "<d",
    types_pb2.DT_HALF: "<e",
    types_pb2.DT_INT32: "<i",
    types_pb2.DT_INT64: "<q",
}
_VALUES = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_HALF: "half_val",
    types_pb2.DT_BFLOAT16: "half_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT64: "int64_val",
}


def _tensor_scalar(tensor: Any) -> float | None:
    """The tensor's number when it has exactly one, else None."""
    dimensions = tensor.tensor_shape.dim
    if len(dimensions) > 1 or any(dimension.size != 1 for dimension in dimensions):
        return None
    if content := tensor.tensor_content:
        return _from_content(tensor.dtype, content)
    values: Sequence[float] = getattr(tensor, _VALUES.get(tensor.dtype, ""), ())
    if len(values) != 1:
        return None
    if tensor.dtype in (types_pb2.DT_HALF, types_pb2.DT_BFLOAT16):
        return _from_content(tensor.dtype, struct.pack("<H", int(values[0]) & 0xFFFF))
    return float(values[0])


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == types_pb2.DT_BFLOAT16 and len(content) == 2:
        dtype, content = types_pb2.DT_FLOAT, b"\0\0" + content
    layout = _CONTENT.get(dtype)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


def masked_crc(data: bytes) -> int:
    """CRC-32C, turned and shifted as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_CRC_TABLE = _crc_table()
