"""TensorBoard event files become points: whole records with right checksums, whatever the file looks like."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google_crc32c import value as crc32c
from tensorboard.compat.proto.event_pb2 import Event

from domain.messages import Point
from worker.node.run_files import is_event_file, walk_files
from worker.streams.records import (
    AROUND_BYTES,
    CHECKSUM,
    HEADER,
    MAX_RECORD_BYTES,
    Gap,
    Why,
    has_header,
    join,
    masked_crc,
    next_header,
)
from worker.streams.tensor_scalars import tensor_scalar

MAX_FILES = 2000
MAX_ZEROS_BYTES = 4 * 1024 * 1024
MAX_REMEMBERED_LENGTH = 4096


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
    gaps: Sequence[Gap] = ()
    """Bytes that gave no points though they may have held some."""
    awaits_data: bool = False
    """Zeros stand at the end of the file: they may be filled without its growing."""


class EventTail:
    """Reads an event file from where it stopped; a record that is not whole yet is read next time."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.final = False
        """Nobody writes any more: what is not whole now never will be."""
        self._wall: float | None = None

    def read(self, max_bytes: int = 4 * 1024 * 1024) -> EventBytes:
        """The next whole records, about `max_bytes` of them; `offset` moves behind them."""
        start = self.offset
        try:
            reading = _Reading(self._bytes_from(start, max_bytes), self._wall)
        except OSError as error:
            return EventBytes(start, start, notice=f"{self.path.name} could not be read: {error.strerror}")
        read = reading.read()
        self.offset, self._wall = read.end, reading.wall
        return read

    def _bytes_from(self, start: int, max_bytes: int) -> _Bytes:
        """The bytes at `start`, more than asked for when one record is longer."""
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


def _only_zeros(fd: int, offset: int) -> bool:
    """Whether nothing else follows; data behind more zeros than are looked through is found in the end."""
    return not any(os.pread(fd, size, offset).rstrip(b"\0") for size in (4096, MAX_ZEROS_BYTES))


def _created(path: Path) -> tuple[int, int, str]:
    """Writers put the second of creation into the name; file times change with every record.

    Of one second's, the outer folder's: a writer makes another one below its own for add_hparams and add_scalars.
    """
    match = re.search(r"tfevents\.(\d{9,11})\.", path.name)
    return (int(match[1]) if match else 1 << 62, len(path.parts), str(path))


class _Bytes(NamedTuple):
    """Bytes of a file of `size` bytes that were read at `start`."""

    name: str
    start: int
    size: int
    buffer: bytes
    is_final: bool
    ends_in_zeros: bool
    """From some place in the buffer on the file has nothing but zeros."""
    written_at: float


class _Reading:
    """One pass over bytes of a file; `wall` is the last wall time before them."""

    def __init__(self, given: _Bytes, wall: float | None) -> None:
        self._given, self.wall = given, wall
        self._series: dict[str, list[Point]] = {}
        self._gaps: list[Gap] = []
        self._notice: str | None = None
        self._awaits_data = self._lacks_wall = False

    def read(self) -> EventBytes:
        """A record counts when both of its checksums are right."""
        buffer, available, position = self._given.buffer, len(self._given.buffer), 0
        unpack, checksum, decode, keep = (
            HEADER.unpack_from,
            CHECKSUM.unpack_from,
            Event.FromString,
            self._keep,
        )
        lengths = _LENGTHS
        while position + 12 <= available:
            length, length_crc = unpack(buffer, position)
            if lengths.get(length) != length_crc and not _is_length(length, length_crc):
                behind = self._behind_no_record(position)
            elif (behind := position + AROUND_BYTES + length) > available:
                behind = self._behind_end(position, behind)
            else:
                data = buffer[position + 12 : behind - 4]
                crc = crc32c(data)
                if (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF == checksum(buffer, behind - 4)[0]:
                    try:
                        keep(decode(data))
                    except DecodeError:
                        self._leave_out(position, behind)
                else:
                    behind = self._behind_damage(position, behind)
            if behind == position:
                break
            position = behind
        else:
            position = self._at_end(position)
        return self._result(position)

    def _keep(self, event: Any) -> None:
        step, wall, series = event.step, event.wall_time, self._series
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

    # -- what is no whole record: each returns where to go on, or the same place to wait there ------

    def _behind_no_record(self, position: int) -> int:
        """Nothing says where this one ends: the next one that says where it begins is looked for."""
        if position + HEADER.size > self._written:
            return self._wait(position)
        behind = next_header(self._given.buffer, position + 1)
        if behind is None:
            is_all = self._given.is_final and self._reaches_end
            behind = self._written if is_all else max(position + 1, self._written - HEADER.size + 1)
        return self._leave_out(position, behind)

    def _behind_damage(self, position: int, behind: int) -> int:
        """Its length is right, its data is not, or not there yet."""
        return self._wait(position) if behind > self._written else self._leave_out(position, behind)

    def _behind_end(self, position: int, behind: int) -> int:
        """It goes on behind the bytes that were read."""
        given, end = self._given, self._given.start + behind
        if end > given.size:
            return self._unfinished(position) if given.is_final else position
        if behind - position <= MAX_RECORD_BYTES:
            return position  # it is read whole next time
        self._notice = (
            f"{given.name}: skipped a record of {behind - position} bytes at byte {end - behind + position}"
        )
        return behind

    def _unfinished(self, position: int) -> int:
        if not self._reaches_end:
            return self._behind_no_record(position)
        behind = next_header(self._given.buffer, position + 1) or len(self._given.buffer)
        return self._leave_out(position, behind, "unfinished")

    def _at_end(self, position: int) -> int:
        """Less is left than a record's beginning."""
        rest = len(self._given.buffer) - position
        if rest > 0 and self._given.is_final and self._reaches_end:
            return self._leave_out(position, position + rest, "unfinished")
        return position

    def _leave_out(self, position: int, behind: int, why: Why = "damaged") -> int:
        start = self._given.start
        self._gaps.append(Gap(start + position, start + behind, why))
        return behind

    def _wait(self, position: int) -> int:
        self._awaits_data = True
        return position

    @property
    def _reaches_end(self) -> bool:
        return self._given.start + len(self._given.buffer) >= self._given.size

    @cached_property
    def _written(self) -> int:
        """How many of the bytes have come; where a file was made longer before its data came, zeros stand."""
        buffer = self._given.buffer
        return len(buffer.rstrip(b"\0")) if self._given.ends_in_zeros else len(buffer)

    def _result(self, position: int) -> EventBytes:
        if self._lacks_wall:
            self._give_first_walls()
        start = self._given.start
        return EventBytes(
            start, start + position, self._series, self._notice, join(self._gaps), self._awaits_data
        )

    def _give_first_walls(self) -> None:
        """The first points had none: they get that of the first behind them that has one, else the file's own."""
        walls = [wall for points in self._series.values() for _, _, wall in points if not math.isnan(wall)]
        first = min(walls, default=self._given.written_at)
        self._series = {
            tag: [(step, value, first if math.isnan(wall) else wall) for step, value, wall in points]
            for tag, points in self._series.items()
        }


_LENGTHS: dict[int, int] = {}
"""Checksums of lengths met before: there are few, and looking one up costs less than computing it."""


def _is_length(length: int, length_crc: int) -> bool:
    if masked_crc(length.to_bytes(8, "little")) != length_crc:
        return False
    if length < MAX_REMEMBERED_LENGTH:
        _LENGTHS[length] = length_crc
    return True
