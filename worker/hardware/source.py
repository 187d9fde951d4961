"""An attempt's hardware samples as a source of points."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.messages import Point, PointBatch
from worker.hardware.sampler import FILE
from worker.streams.point_uploader import OffsetOf

READ_BYTES = 1024 * 1024


class HardwareFile:
    """The samples of one attempt on this node; there is at most one file, and it only grows."""

    path, generation = FILE, 0

    def __init__(self, folder: Path, offset_of: OffsetOf) -> None:
        self._file, self._offset_of = folder / FILE, offset_of
        self._offset: int | None = None

    def sources(self, final: bool) -> Iterator[HardwareFile]:
        """Yield this source once there are samples. Raises what `offset_of` raises."""
        if self.size_bytes:
            if self._offset is None:
                self._offset = self._offset_of(self.path, self.generation)
            yield self

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        try:
            return self._file.stat().st_size
        except OSError:
            return 0

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read the next complete lines, about `max_bytes`; None if there are none."""
        start = end = self._offset or 0
        series: dict[str, list[Point]] = {}
        for raw in self._lines(start):
            end += len(raw)
            for name, point in _points_of(raw):
                series.setdefault(name, []).append(point)
            if end - start >= max_bytes:
                break
        if end == start:
            return None
        self._offset = end
        return PointBatch(
            path=self.path, generation=0, start=start, end=end, source="hardware", series=series
        )

    def rewind(self, offset: int) -> None:
        """Continue reading at `offset`."""
        self._offset = offset

    def _lines(self, start: int) -> list[bytes]:
        try:
            with self._file.open("rb") as file:
                file.seek(start)
                data = file.read(READ_BYTES)
        except OSError:
            return []
        return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


def _points_of(raw: bytes) -> Iterator[tuple[str, Point]]:
    """Yield (tag, point) of one sample; a line that is none yields nothing."""
    line: Any = None
    with suppress(ValueError):
        line = json.loads(raw)
    if not isinstance(line, dict) or not isinstance(line.get("values"), dict):
        return
    step, wall = line.get("step"), line.get("t")
    if not isinstance(step, int) or not isinstance(wall, float | int) or not math.isfinite(wall):
        return
    named = {
        **line["values"],
        **{f"event/{text}": value for text, value in (line.get("events") or {}).items()},
    }
    for name, value in named.items():
        if isinstance(value, float | int):
            yield name, (step, float(value), float(wall))
