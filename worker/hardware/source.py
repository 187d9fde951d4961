"""An attempt's hardware samples as a source of points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from worker.hardware.sampler import FILE
from worker.streams.json_lines import JsonLines, JsonPoints, Record
from worker.streams.point_uploader import OffsetOf


class HardwareFile:
    """The samples of one attempt on this node; there is at most one file, and it only grows."""

    def __init__(self, folder: Path, offset_of: OffsetOf) -> None:
        self._lines, self._offset_of = JsonLines(folder / FILE), offset_of
        self._points: JsonPoints | None = None

    def sources(self, final: bool) -> Iterator[JsonPoints]:
        """Yield this source once there are samples. Raises what `offset_of` raises."""
        if self._lines.size_bytes:
            if self._points is None:
                self._lines.offset = self._offset_of(FILE, 0)
                self._points = JsonPoints(FILE, self._lines, "hardware", points_of)
            yield self._points


def points_of(record: Record) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, step, value) of one sample; a record that is none yields nothing."""
    step, values = record.get("step"), record.get("values")
    if not isinstance(step, int) or not isinstance(values, dict):
        return
    events = {f"event/{text}": count for text, count in (record.get("events") or {}).items()}
    for name, value in (values | events).items():
        if isinstance(value, float | int):
            yield name, step, float(value)
