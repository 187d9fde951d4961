"""Read points from TensorBoard event files: complete records with valid checksums, however damaged the file."""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google_crc32c import value as crc32c

from domain.messages import Point
from worker.node.holes import data_after
from worker.node.run_files import is_event_file, walk_files


class EventTail:
    """Read an event file from an offset on; an incomplete record is read next time."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.final = False
        """The writer has ended: an incomplete record will never be completed."""
        self._wall: float | None = None

    def read(self, max_bytes: int = 4 * 1024 * 1024) -> EventBytes:
        """Read the next complete records, about `max_bytes`; `offset` moves past them."""
        start = self.offset
        try:
            if self.final and (end := self._end_of_hole(start)):
                self.offset = end
                return EventBytes(start, end, gaps=[Gap(start, end)])
            parser = _Parser(self._bytes_from(start, max_bytes), self._wall)
        except OSError as error:
            return EventBytes(start, start, notice=f"{self.path.name} could not be read: {error.strerror}")
        batch = parser.parse()
        self.offset, self._wall = batch.end, parser.wall
        return batch

    def _end_of_hole(self, start: int) -> int | None:
        """Return where a long hole ends that `start` lies in: it is left out at once, however long it is."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            end = data_after(fd, start)
            return end if end - start >= MAX_ZEROS_BYTES else None
        finally:
            os.close(fd)

    def _bytes_from(self, start: int, max_bytes: int) -> _Bytes:
        """Read the bytes at `start`: `max_bytes`, or one record if it is longer."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            status = os.fstat(fd)
            size = status.st_size
            buffer = os.pread(fd, max(max_bytes, HEADER.size), start)
            if len(buffer) >= HEADER.size and has_header(buffer, 0):
                record_bytes = HEADER.unpack_from(buffer)[0] + AROUND_BYTES
                if len(buffer) < record_bytes <= min(size - start, MAX_RECORD_BYTES):
                    buffer = os.pread(fd, record_bytes, start)
            ends_in_zeros = buffer.endswith(b"\0") and not self.final and _only_zeros(fd, start + len(buffer))
            return _Bytes(self.path.name, start, size, buffer, self.final, ends_in_zeros, status.st_mtime)
        finally:
            os.close(fd)


MAX_ZEROS_BYTES = 4 * 1024 * 1024
MAX_REMEMBERED_LENGTH = 4096
HEADER = struct.Struct("<QI")
"""A record: length (8 bytes), masked CRC-32C of these 8, the data, masked CRC-32C of the data."""
CHECKSUM = struct.Struct("<I")
WALL = struct.Struct("<d")
FLOAT = struct.Struct("<f")
AROUND_BYTES = HEADER.size + CHECKSUM.size
LEAST_EVENT_BYTES = 16
"""A wall time (9 bytes), a step (2) and a value (5) without its tag; less is cut off."""
MAX_RECORD_BYTES = 64 * 1024 * 1024
"""A longer record (a video, a graph) holds no scalar worth its memory: it is skipped."""
_MASK_DELTA = 0xA282EAD8
_NOT_ZERO = re.compile(rb"[^\0]")
_UPPER_LENGTH = bytes(4)
"""The upper half of a length: zero, because no record of interest has more than 4 GiB."""
HPARAMS_FOLDER = re.compile(r"\d{9,}\.\d+")
"""Of a writer's folder, where `add_hparams` writes; it is named by the time."""
Why = Literal["damaged", "unfinished"]


def find_event_files(root: Path, prune: Path | None = None, cut: Callable[[], object] = lambda: None) -> list[Path]:
    """Return the event files below `root`, oldest first, as `walk_files` does; links are not followed."""
    return sorted((Path(entry.path) for entry in walk_files(root, is_event_file, prune, cut)), key=_created)


def main_writer_dir(files: Iterable[Path]) -> Path | None:
    """Return the directory whose tags keep their plain names: that of the oldest event file."""
    first = min(files, key=_created, default=None)
    return first.parent if first else None


def series_name(tag: str, writer_dir: str, main_dir: str) -> str:
    """Return the tag for the main writer, `DIR:tag` for others; DIR is relative to the main directory if inside.

    That of `add_hparams` is `hparams`: no two runs share its own name, the time."""
    if writer_dir == main_dir:
        return tag
    folder = writer_dir.removeprefix(f"{main_dir}/")
    return f"{'hparams' if HPARAMS_FOLDER.fullmatch(folder) else folder}:{tag}"


@dataclass(frozen=True)
class Gap:
    """Bytes of an event file that gave no points but may have held some."""

    start: int
    end: int
    why: Why = "damaged"


@dataclass(frozen=True)
class EventBytes:
    """Points read from the bytes `start` to `end` of a file."""

    start: int
    end: int
    series: dict[str, list[Point]] = field(default_factory=dict)
    """Tag -> points, in the file's order."""
    notice: str | None = None
    """One sentence if something was skipped."""
    gaps: Sequence[Gap] = ()
    """Bytes that gave no points but may have held some."""
    awaits_data: bool = False
    """The file ends in zeros, which may be filled without the file growing."""


def _only_zeros(fd: int, offset: int) -> bool:
    """Whether only zeros follow. Data after more zeros than are checked here is found when the attempt has ended."""
    return not any(os.pread(fd, size, offset).rstrip(b"\0") for size in (4096, MAX_ZEROS_BYTES))


def _created(path: Path) -> tuple[int, int, int, str]:
    """Return a sort key: the second of creation in the name, because file times change with every record.

    In the same second the outer folder comes first: add_hparams and add_scalars make further writers below it; then
    the one that its process numbered lower.
    """
    match = re.search(r"tfevents\.(\d{9,11})\.(?:.+\.\d+\.(\d+))?", path.name)
    second, number = match.groups() if match else (None, None)
    return (int(second) if second else 1 << 62, len(path.parts), int(number or 0), str(path))


class _Bytes(NamedTuple):
    """Bytes read at `start` from a file of `size` bytes."""

    name: str
    start: int
    size: int
    buffer: bytes
    is_final: bool
    ends_in_zeros: bool
    """The file has nothing but zeros after some position in the buffer."""
    written_at: float


class _Parser:
    """One pass over a buffer; `wall` is the last wall time before it."""

    def __init__(self, buffer: _Bytes, wall: float | None) -> None:
        self._source, self.wall = buffer, wall
        self._series: dict[str, list[Point]] = {}
        self._gaps: list[Gap] = []
        self._notice: str | None = None
        self._awaits_data = self._lacks_wall = False

    def parse(self) -> EventBytes:
        """Parse the buffer; a record counts if both of its checksums are valid."""
        buffer, available, position = self._source.buffer, len(self._source.buffer), 0
        unpack, checksum, add_quickly, add = (
            HEADER.unpack_from,
            CHECKSUM.unpack_from,
            self._add_quickly,
            self._add,
        )
        lengths = _LENGTHS
        while position + 12 <= available:
            length, length_crc = unpack(buffer, position)
            if lengths.get(length) != length_crc and not _is_length(length, length_crc):
                end = self._skip_to_next_record(position)
            elif (end := position + AROUND_BYTES + length) > available:
                end = self._skip_beyond_buffer(position, end)
            else:
                data = buffer[position + 12 : end - 4]
                crc = crc32c(data)
                if (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF == checksum(buffer, end - 4)[0]:
                    try:
                        if not add_quickly(data):
                            add(data)
                    except DecodeError:
                        self._add_gap(position, end)
                else:
                    end = self._skip_damaged(position, end)
            if end == position:
                break
            position = end
        else:
            position = self._at_end(position)
        return self._result(position)

    def _add_quickly(self, data: bytes) -> bool:
        """Add the point of an event that differs from one seen before in its wall time, step and value alone."""
        if len(data) < LEAST_EVENT_BYTES or data[:1] != b"\x09" or data[9:10] != b"\x10":
            return False
        if (step := data[10]) < 0x80:
            begin = 11
        elif (upper := data[11]) < 0x80:
            step, begin = step & 0x7F | upper << 7, 12
        else:
            step, begin = _step(data)
        tag, wall = _TAGS.get(data[begin:-4]), WALL.unpack_from(data, 1)[0]
        if tag is None or wall - wall:
            return False
        self.wall = wall
        if (points := self._series.get(tag)) is None:
            points = self._series[tag] = []
        points.append((step, FLOAT.unpack_from(data, len(data) - 4)[0], wall))
        return True

    def _add(self, data: bytes) -> None:
        event = Event.FromString(data)
        step, wall, series = event.step, event.wall_time, self._series
        _remember_tag(event, data)
        if wall - wall:  # NaN or infinite
            self._lacks_wall = self._lacks_wall or self.wall is None
            wall = math.nan if self.wall is None else self.wall
        else:
            self.wall = wall
        for value in event.summary.value:
            if value.HasField("simple_value"):
                number: float | None = value.simple_value
            elif value.HasField("tensor") and value.metadata.plugin_data.plugin_name in ("", "scalars"):
                number = tensor_scalar(value.tensor)
            else:
                continue
            if number is not None:
                tag = value.tag
                if (points := series.get(tag)) is None:
                    points = series[tag] = []
                points.append((step, number, wall))

    # -- incomplete and damaged records: each method returns where to continue, or `position` to wait there ------

    def _skip_to_next_record(self, position: int) -> int:
        """Skip to the next valid header: this record's length is damaged, so its end is unknown."""
        if position + HEADER.size > self._written:
            return self._wait(position)
        end = next_header(self._source.buffer, position + 1)
        if end is None:
            is_all = self._source.is_final and self._reaches_end
            end = self._written if is_all else max(position + 1, self._written - HEADER.size + 1)
        return self._add_gap(position, end)

    def _skip_damaged(self, position: int, end: int) -> int:
        """Skip a record whose length is valid and whose data is not, unless the data may still come."""
        return self._wait(position) if end > self._written else self._add_gap(position, end)

    def _skip_beyond_buffer(self, position: int, behind: int) -> int:
        """Decide on a record that ends beyond the buffer: wait for it, read it next time or skip it."""
        source, end = self._source, self._source.start + behind
        if end > source.size:
            return self._unfinished(position) if source.is_final else position
        if behind - position <= MAX_RECORD_BYTES:
            return position  # the next call reads it completely
        self._notice = f"{source.name}: skipped a record of {behind - position} bytes at byte {end - behind + position}"
        return behind

    def _unfinished(self, position: int) -> int:
        if not self._reaches_end:
            return self._skip_to_next_record(position)
        end = next_header(self._source.buffer, position + 1) or len(self._source.buffer)
        return self._add_gap(position, end, "unfinished")

    def _at_end(self, position: int) -> int:
        """Handle a remainder that is shorter than a record's header."""
        remaining = len(self._source.buffer) - position
        if remaining > 0 and self._source.is_final and self._reaches_end:
            return self._add_gap(position, position + remaining, "unfinished")
        return position

    def _add_gap(self, position: int, end: int, why: Why = "damaged") -> int:
        start = self._source.start
        self._gaps.append(Gap(start + position, start + end, why))
        return end

    def _wait(self, position: int) -> int:
        self._awaits_data = True
        return position

    @property
    def _reaches_end(self) -> bool:
        return self._source.start + len(self._source.buffer) >= self._source.size

    @cached_property
    def _written(self) -> int:
        """Return the number of bytes before the trailing zeros of a file that was extended before it was written."""
        buffer = self._source.buffer
        return len(buffer.rstrip(b"\0")) if self._source.ends_in_zeros else len(buffer)

    def _result(self, position: int) -> EventBytes:
        if self._lacks_wall:
            self._fill_first_walls()
        start = self._source.start
        return EventBytes(start, start + position, self._series, self._notice, join(self._gaps), self._awaits_data)

    def _fill_first_walls(self) -> None:
        """Give points without a wall time that of the first point that has one, else the file's modification time."""
        walls = [wall for points in self._series.values() for _, _, wall in points if not math.isnan(wall)]
        first = min(walls, default=self._source.written_at)
        self._series = {
            tag: [(step, value, first if math.isnan(wall) else wall) for step, value, wall in points]
            for tag, points in self._series.items()
        }


_LENGTHS: dict[int, int] = {}
"""Checksums of lengths seen before: there are few, and a look-up costs less than computing one."""
_TAGS: dict[bytes, str] = {}
"""The bytes between step and value of events with one plain scalar -> its tag: they are the same at every step, and a
look-up costs a third of decoding the event."""
MAX_TAGS = 10_000
_MAX_STEP_BYTES = 5


def _step(data: bytes) -> tuple[int, int]:
    """Return the step, a varint at byte 10, and where it ends; an end beyond the data for a longer or negative one."""
    step = 0
    for place in range(_MAX_STEP_BYTES):
        byte = data[10 + place] if 10 + place < len(data) else 0
        step |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return step, 11 + place
    return 0, len(data)


def _remember_tag(event: Any, data: bytes) -> None:
    """Remember the bytes before the value, if replacing the last four bytes replaces the value and nothing else."""
    values = event.summary.value
    begin = _step(data)[1] if data[:1] == b"\x09" and data[9:10] == b"\x10" else len(data)
    if len(values) != 1 or not values[0].HasField("simple_value") or begin > len(data) - 4:
        return
    other = 1.5 if values[0].simple_value != 1.5 else 2.5
    same = Event.FromString(data)
    same.summary.value[0].simple_value = other
    if Event.FromString(data[:-4] + FLOAT.pack(other)) == same:
        if len(_TAGS) >= MAX_TAGS:
            _TAGS.clear()
        _TAGS[data[begin:-4]] = values[0].tag


def _is_length(length: int, length_crc: int) -> bool:
    if masked_crc(length.to_bytes(8, "little")) != length_crc:
        return False
    if length < MAX_REMEMBERED_LENGTH:
        _LENGTHS[length] = length_crc
    return True


def join(gaps: Sequence[Gap]) -> list[Gap]:
    """Merge adjacent gaps, keeping their order."""
    joined: list[Gap] = []
    for gap in gaps:
        if joined and joined[-1].end == gap.start:
            gap = Gap(joined.pop().start, gap.end, gap.why)
        joined.append(gap)
    return joined


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C rotated and offset as TFRecord files store it."""
    crc: int = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def has_header(buffer: bytes, position: int) -> bool:
    """Whether the bytes at `position` are a length followed by its valid checksum."""
    length_crc: int = HEADER.unpack_from(buffer, position)[1]
    return masked_crc(buffer[position : position + 8]) == length_crc


def next_header(buffer: bytes, begin: int) -> int | None:
    """Return the position of the next record at or after `begin`: a valid length of at most `MAX_RECORD_BYTES`."""
    upper = buffer.find(_UPPER_LENGTH, begin + 4)
    while upper != -1 and upper + 8 <= len(buffer):
        position = upper - 4
        if not any(buffer[position : position + HEADER.size]):  # a hole: skip all of its zeros at once
            nonzero = _NOT_ZERO.search(buffer, upper)
            if nonzero is None:
                return None
            upper = max(upper, nonzero.start() - 8)
        elif HEADER.unpack_from(buffer, position)[0] <= MAX_RECORD_BYTES and has_header(buffer, position):
            return position
        upper = buffer.find(_UPPER_LENGTH, upper + 1)
    return None


# Make the classes of protobuf messages from the few fields that are read, without the packages that write them.


def message_class(fields: Mapping[str, str], name: str) -> Any:
    """Return the class of one of the messages.

    `fields` has those of each message as NAME:NUMBER:TYPE, by default a text, with * repeated."""
    schema = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="rankzero", syntax="proto3")
    for message_name, texts in fields.items():
        message = schema.message_type.add(name=message_name)
        for text in texts.split():
            field, number, kind = [*text.split(":"), ""][:3]
            _add_field(message, field, int(number), kind, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"rankzero.{name}"))


def _add_field(message: Any, name: str, number: int, kind: str, messages: Mapping[str, str]) -> None:
    types = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(name=name, number=number, label=types.LABEL_OPTIONAL)
    if kind.endswith("*"):
        field.label, kind = types.LABEL_REPEATED, kind[:-1]
    if kind in messages:
        field.type, field.type_name = types.TYPE_MESSAGE, f".rankzero.{kind}"
        return
    field.type = types.Type.Value(f"TYPE_{(kind or 'string').upper()}")
    if field.label == types.LABEL_OPTIONAL:  # told apart from its default, as `HasField` asks
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


# The messages in TensorBoard's event files as far as they are read, and the scalars in their tensors.

Event = message_class(
    {
        "Event": "wall_time:1:double step:2:int64 summary:5:Summary",
        "Summary": "value:1:Value*",
        "Value": "tag:1 simple_value:2:float tensor:8:Tensor metadata:9:Metadata",
        "Metadata": "plugin_data:1:PluginData",
        "PluginData": "plugin_name:1 content:2:bytes",
        "Tensor": "dtype:1:int32 tensor_shape:2:Shape tensor_content:4:bytes float_val:5:float* double_val:6:double* "
        "int_val:7:int32* int64_val:10:int64* half_val:13:int32*",
        "Shape": "dim:2:Dimension*",
        "Dimension": "size:1:int64",
    },
    "Event",
)
"""Of `event.proto`, `summary.proto` and `tensor.proto`."""
Hyperparameters = message_class(
    {
        "Hyperparameters": "session_start_info:3:Start",
        "Start": "hparams:1:Entry*",
        "Entry": "key:1 value:2:Value",
        "Value": "number_value:2:double string_value:3 bool_value:4:bool",
    },
    "Hyperparameters",
)
"""What the plugin `hparams` keeps in an event (`plugin_data.proto`)."""
DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_BFLOAT16, DT_HALF = 1, 2, 3, 9, 14, 19
"""Types of a tensor (`types.proto`)."""
_CONTENT = {
    DT_FLOAT: "<f",
    DT_DOUBLE: "<d",
    DT_HALF: "<e",
    DT_INT32: "<i",
    DT_INT64: "<q",
}
_VALUES = {
    DT_FLOAT: "float_val",
    DT_DOUBLE: "double_val",
    DT_HALF: "half_val",
    DT_BFLOAT16: "half_val",
    DT_INT32: "int_val",
    DT_INT64: "int64_val",
}


def tensor_scalar(tensor: Any) -> float | None:
    """Return the tensor's number if it has exactly one, else None."""
    dimensions = tensor.tensor_shape.dim
    if len(dimensions) > 1 or any(dimension.size != 1 for dimension in dimensions):
        return None
    if content := tensor.tensor_content:
        return _from_content(tensor.dtype, content)
    values: Sequence[float] = getattr(tensor, _VALUES.get(tensor.dtype, ""), ())
    if len(values) != 1:
        return None
    if tensor.dtype in (DT_HALF, DT_BFLOAT16):
        return _from_content(tensor.dtype, struct.pack("<H", int(values[0]) & 0xFFFF))
    return float(values[0])


def _from_content(dtype: int, content: bytes) -> float | None:
    if dtype == DT_BFLOAT16 and len(content) == 2:
        dtype, content = DT_FLOAT, b"\0\0" + content
    layout = _CONTENT.get(dtype)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])
