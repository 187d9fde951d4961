"""W&B's `.wandb` files: their records, the run they describe, and a file as a store that grows."""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from domain.text.json_values import parse_json
from worker.loggers.store_source import Logged, LoggedPoint, size_of
from worker.node.regular_files import open_regular
from worker.streams.events import Gap, message_class


class WandbFile:
    """The file of one run."""

    logger = "wandb"

    def __init__(self, path: str, file: Path) -> None:
        """`path` is its name on the server."""
        self.path, self._file = path, file
        self.restart()

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        return size_of(self._file)

    def restart(self) -> None:
        """Yield the first row next."""
        self._position = 0
        self._rows: WandbRows | None = None
        self._run = WandbRun()

    def records(self) -> Iterator[Logged]:
        """Yield the complete rows behind those that were yielded before. Raises OSError."""
        self._rows, gaps = self._rows or WandbRows(self._file.stat().st_mtime), list[Gap]()
        for end, record in records(self._file, self._position, gaps.append):
            self._position = end
            self._run.read(record)
            points = list(self._rows.points(record))
            if points:
                yield Logged(end, str(self._file), points, tuple(gaps))
                gaps.clear()
        if gaps:
            yield Logged(self._position, str(self._file), [], tuple(gaps), self._file.stat().st_mtime)

    def settings(self, run: str) -> dict[str, Any]:
        """Return hyperparameters, tags and the like, as far as they were read."""
        return self._run.settings


# A run of W&B as its records tell it: the points of its rows, its settings and its end.

NO_END = "W&B's file has no end: the script was killed, or it still runs."
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Numbers that JSON has only as text."""


class WandbRun:
    """All of a run but its points."""

    def __init__(self) -> None:
        self.name, self.run_id, self.project, self.started_at = "", "", "", 0.0
        self._tags = list[str]()
        self._logged: set[str] = set()
        self._config: dict[str, Any] = {}
        self._summary: dict[str, Any] = {}
        self._exit_code: int | None = None

    def read(self, record: Any) -> None:
        """Take what a record says; later ones replace earlier ones."""
        if record.HasField("run"):
            run = record.run
            self.name, self.run_id, self.project = run.display_name or run.run_id, run.run_id, run.project
            self._tags = list(run.tags)
            self.started_at = self.started_at or run.start_time.seconds + run.start_time.nanos / 1e9
            _update(self._config, run.config.update)
        _update(self._config, record.config.update)
        _update(self._summary, record.summary.update)
        self._logged.update(_name(item) for item in record.history.item)
        if record.HasField("exit"):
            self._exit_code = record.exit.exit_code

    def begin_part(self) -> None:
        """Go on with the file of a process that resumed the run: its end counts, not the one before."""
        self._exit_code = None

    @property
    def end(self) -> tuple[Literal["succeeded", "failed"], str | None]:
        """The state and how it ended."""
        if self._exit_code == 0:
            return "succeeded", None
        ended = None if self._exit_code is None else f"The script ended with exit code {self._exit_code}."
        return "failed", ended or NO_END

    @property
    def settings(self) -> dict[str, Any]:
        """Hyperparameters, tags, project, and what the script itself added to the summary."""
        own = {
            name: value
            for name, value in self._summary.items()
            if name not in self._logged and not isinstance(value, dict)
        }
        settings = {"config": self._config, "tags": self._tags, "project": self.project, "summary": own}
        return {name: value for name, value in settings.items() if value}


def _update(values: dict[str, Any], items: Any) -> None:
    for item in items:
        name = _name(item)
        if not name.startswith("_"):
            with suppress(ValueError):
                values[name] = parse_json(item.value_json)


class WandbRows:
    """Reads points from the records of one run, in their order: an x-axis may be defined by an earlier one."""

    def __init__(self, wall: float) -> None:
        """`wall` is the time of rows that have none, in seconds since the epoch."""
        self._axes, self._wall = _Axes(), wall

    def points(self, record: Any) -> Iterator[LoggedPoint]:
        """Yield the numbers of a row, on the x-axis that `define_metric` chose."""
        if record.HasField("metric"):
            self._axes.define(record.metric)
        if record.HasField("history"):
            row = _row(record.history)
            self._wall = row.pop("_timestamp", self._wall)
            own = row.pop("_step", math.nan)
            step = int(own) if math.isfinite(own) else record.history.step.num
            for name, x in self._axes.steps(row, step).items():
                yield LoggedPoint(name, x, row[name], self._wall)


def _row(history: Any) -> dict[str, float]:
    numbers = {_name(item): _number(item) for item in history.item}
    return {name: value for name, value in numbers.items() if value is not None and name != "_runtime"}


def _name(item: Any) -> str:
    return ".".join(item.nested_key) or str(item.key)


def _number(item: Any) -> float | None:
    for field in ("number", "integer", "boolean"):
        if item.HasField(field):
            return float(getattr(item, field))
    try:
        value = parse_json(item.value_json)
    except ValueError:
        return None
    is_number = isinstance(value, int | float) or (isinstance(value, str) and value in NOT_FINITE)
    return float(value) if is_number else None


class _Axes:
    """The x-axes of `define_metric`: where an axis is not a whole number, the row's own step counts."""

    def __init__(self) -> None:
        self._axes: dict[str, str] = {}
        self._latest: dict[str, float] = {}
        self._fractional: set[str] = set()

    def define(self, metric: Any) -> None:
        """Set the x-axis of a metric, or of all that begin with a prefix."""
        self._axes[metric.name or metric.glob_name] = metric.step_metric

    def steps(self, row: dict[str, float], step: int) -> dict[str, int]:
        """Return the step of each value of a row."""
        self._latest |= row
        return {name: self._step_of(name, step) for name in row}

    def _step_of(self, name: str, step: int) -> int:
        axis = self._axis_of(name)
        x = self._latest.get(axis) if axis != name and axis not in self._fractional else None
        if x is not None and not x.is_integer():
            self._fractional.add(axis)
        return int(x) if x is not None and x.is_integer() else step

    def _axis_of(self, name: str) -> str:
        if name in self._axes:
            return self._axes[name]
        prefixes = [key for key in self._axes if key.endswith("*") and name.startswith(key[:-1])]
        return self._axes[max(prefixes, key=len)] if prefixes else ""


# Read the records of W&B's `.wandb` files: LevelDB's log format around protobuf messages, without the package.

BLOCK_BYTES = 32 * 1024
IDENT, IDENT_BYTES = b":W&B", 7
"""The beginning of the file, with a version behind it."""
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
    with open_regular(file) as content:
        is_wandb = content.read(len(IDENT)) == IDENT
        for start, end, data in _payloads(_chunks(content, max(offset, IDENT_BYTES))):
            record = None if data is None else _decoded(data)
            if record is not None:
                yield end, record
            else:
                is_end = is_wandb and end == content.seek(0, os.SEEK_END)
                lost(Gap(start, end, "unfinished" if is_end else "damaged"))


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
        while at < len(block) and (chunk := _next_chunk(block, at)) is not None:
            if chunk.start > at:
                yield _Chunk(position + at, position + chunk.start, DAMAGED, b"")
            yield _Chunk(position + chunk.start, position + chunk.end, chunk.kind, chunk.data)
            at = chunk.end
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
