"""Points of other loggers (W&B, MLflow, ...), which the probe writes in rank 0, as point sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from worker.node.run_files import LOGGERS
from worker.streams.json_lines import JsonLines, JsonPoints, Record
from worker.streams.point_uploader import OffsetOf


class LoggerFiles:
    """The files of all processes on this node whose loggers are observed."""

    def __init__(self, attempt: Path, offset_of: OffsetOf) -> None:
        self._folder, self._offset_of = attempt / LOGGERS, offset_of
        self._sources: dict[str, JsonPoints] = {}

    def sources(self, final: bool) -> Iterator[JsonPoints]:
        """Yield the source of each file. Raises what `offset_of` raises."""
        for name in _names(self._folder):
            if name not in self._sources:
                path = f"{LOGGERS}/{name}"
                lines = JsonLines(self._folder / name, self._offset_of(path, 0))
                self._sources[name] = JsonPoints(path, lines, "events", points_of)
            yield self._sources[name]


def points_of(record: Record) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, step, value) of each value that a logger got for one step."""
    step, values = record.get("step", ""), record.get("values")
    if not isinstance(values, dict):
        return
    for tag, value in values.items():
        if isinstance(value, float | int):
            yield tag, step, float(value)


def _names(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - every 50 ms
    except OSError:
        return []
    return sorted(name for name in names if name.removesuffix(".jsonl").isdigit())
