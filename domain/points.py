"""Points as columns of bytes: how workers send them and the store keeps them, without an object for each. Pure."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

from pydantic import ValidationInfo, field_validator

from domain.messages import BatchHead, Point, PointBatch
from domain.requests.bounds import Count

STEP, NUMBER = "q", "d"
"""Type codes of the columns: steps (int64), values and wall times (float64)."""
NUMBER_BYTES = 8


@dataclass(slots=True)
class PackedPoints:
    """Points of one series as three columns, little-endian: steps, values and wall times."""

    steps: bytes = b""
    values: bytes = b""
    walls: bytes = b""

    @classmethod
    def of(cls, points: Iterable[Point]) -> Self:
        """Pack points, unless they are packed."""
        if isinstance(points, cls):
            return points
        columns = [*zip(*points, strict=True)] or [(), (), ()]
        return cls(*(_packed(code, column) for code, column in zip((STEP, NUMBER, NUMBER), columns, strict=True)))

    @classmethod
    def of_chunk(cls, blob: bytes) -> Self:
        """Take the columns of a stored chunk."""
        third = len(blob) // 3
        return cls(blob[:third], blob[third : 2 * third], blob[2 * third :])

    def chunk(self) -> bytes:
        """All steps, then all values, then all wall times."""
        return self.steps + self.values + self.walls

    def followed_by(self, points: PackedPoints) -> PackedPoints:
        """Add points at the end."""
        return PackedPoints(self.steps + points.steps, self.values + points.values, self.walls + points.walls)

    def part(self, start: int, end: int) -> PackedPoints:
        """Cut out the points from one place to another."""
        first, last = NUMBER_BYTES * start, NUMBER_BYTES * end
        return PackedPoints(self.steps[first:last], self.values[first:last], self.walls[first:last])

    def __len__(self) -> int:
        """The number of points."""
        return len(self.steps) // NUMBER_BYTES

    def __iter__(self) -> Iterator[Point]:
        """Yield the points one by one."""
        return zip(_column(STEP, self.steps), _column(NUMBER, self.values), _column(NUMBER, self.walls), strict=True)


class PackedBatch(BatchHead):
    """A `PointBatch` as it travels: a line of JSON, and behind it the columns of all its points."""

    counts: dict[str, Count]
    """The number of points of each series, in the order of the columns."""
    columns: bytes = b""

    @field_validator("columns")
    @classmethod
    def _are_those_of_its_series(cls, columns: bytes, info: ValidationInfo) -> bytes:
        if len(columns) != 3 * NUMBER_BYTES * sum(info.data.get("counts", {}).values()):
            raise ValueError("must hold a step, a value and a wall time for each point of the series")
        if not all(map(math.isfinite, _column(NUMBER, PackedPoints.of_chunk(columns).walls))):
            raise ValueError("must hold finite wall times for the points of the series")
        return columns

    @classmethod
    def of_body(cls, body: bytes) -> Self:
        """Read what `body_of` has made. Raises ValidationError."""
        line, _, columns = body.partition(b"\n")
        return cls.model_validate(cls.model_validate_json(line).__dict__ | {"columns": columns})

    @property
    def series(self) -> dict[str, PackedPoints]:
        """The points by the names of their series."""
        points, at, series = PackedPoints.of_chunk(self.columns), 0, dict[str, PackedPoints]()
        for tag, count in self.counts.items():
            series[tag] = points.part(at, at + count)
            at += count
        return series


def body_of(batch: PointBatch) -> bytes:
    """Write the content of a piece."""
    counts = {tag: len(points) for tag, points in batch.series.items()}
    head = PackedBatch.model_construct(**batch.__dict__, counts=counts)
    columns = PackedPoints.of(chain.from_iterable(batch.series.values())).chunk()
    return head.model_dump_json(exclude={"columns"}).encode() + b"\n" + columns


def _packed(code: str, column: Iterable[Any]) -> bytes:
    return _little_endian(array(code, column)).tobytes()


def _column(code: str, content: bytes) -> array[Any]:
    return _little_endian(array(code, content))


def _little_endian(column: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        column.byteswap()
    return column
