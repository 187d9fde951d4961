"""Read a growing file of JSON records, one a line, from an offset on, also as points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domain.messages import Point, PointBatch, PointKind
from domain.text.json_values import parse_json, storable
from worker.node.regular_files import open_regular

READ_BYTES = 1024 * 1024
"""A longer line is none of ours and is skipped."""

Record = dict[str, Any]
PointsOf = Callable[[Record], Iterator[tuple[str, int, float]]]


@dataclass
class JsonLines:
    """A reader of complete lines; the last one may still be written."""

    path: Path
    offset: int = 0
    """Bytes read."""

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def read(self) -> Iterator[tuple[int, Record]]:
        """Yield (offset after the record, the record) and move `offset`; lines that are no record are skipped."""
        try:
            with open_regular(self.path) as file:
                file.seek(self.offset)
                data = file.read(READ_BYTES)
        except OSError:
            return
        if b"\n" not in data and len(data) == READ_BYTES:
            self.offset += len(data)
            return
        for raw in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self.offset += len(raw)
            with suppress(ValueError):
                record = parse_json(raw)
                if isinstance(record, dict):
                    yield self.offset, record


class JsonPoints:
    """A source of points from one file of JSON records; `t` of a record is its time, in seconds since the epoch."""

    generation = 0

    def __init__(self, path: str, lines: JsonLines, source: PointKind, points_of: PointsOf) -> None:
        """`path` is the file's name on the server; `points_of` yields (tag, step, value) of a record."""
        self.path, self._lines, self._source, self._points_of = path, lines, source, points_of
        self._wall: float | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        return self._lines.size_bytes

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read the next complete lines, about `max_bytes`; None if there are none."""
        start, series = self._lines.offset, dict[str, list[Point]]()
        for offset, record in self._lines.read():
            for tag, step, value in self._points(record):
                self._wall = self._time_of(record)
                series.setdefault(storable(tag), []).append((step, value, self._wall))
            if offset - start >= max_bytes:
                break
        end = self._lines.offset
        if end == start:
            return None
        return PointBatch(path=self.path, generation=0, start=start, end=end, source=self._source, series=series)

    def rewind(self, offset: int) -> None:
        """Continue reading at `offset`."""
        self._lines.offset = offset

    def _points(self, record: Record) -> list[tuple[str, int, float]]:
        """Return the points of a record; a record of another shape, which is none of ours, has none."""
        if not isinstance(record.get("t"), float | int):
            return []
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            return [point for point in self._points_of(record) if is_step(point[1])]
        return []

    def _time_of(self, record: Record) -> float:
        """Return the record's time; if it is not finite, that of the previous point, else the file's."""
        if math.isfinite(recorded_at := float(record["t"])):
            return recorded_at
        if self._wall is None:
            with suppress(OSError):
                return self._lines.path.stat().st_mtime
        return self._wall or 0.0


def is_step(step: Any) -> bool:
    """Whether it is a whole number that the store can hold."""
    return isinstance(step, int) and step.bit_length() <= 63
