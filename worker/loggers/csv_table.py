"""A CSV file with a row for each epoch or step, as YOLO's `results.csv`, as a store that grows."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from worker.loggers.store_source import Logged, LoggedPoint, size_of
from worker.node.regular_files import open_regular

NAMES = frozenset(
    f"{stem}.csv" for stem in "results summary metrics progress log logs history train_log training_log loss".split()
)
MAX_LINE_BYTES = 64 * 1024
MAX_COLUMNS = 200
STEPS = ("global_step", "step", "iteration", "iter", "epoch")
"""Columns that give a row's place; the first that exists counts."""
NO_VALUES = frozenset({*STEPS, "time", "timestamp", "wall_time"})


class CsvTable:
    """The rows of one file; offsets are bytes."""

    logger = "csv"

    def __init__(self, path: str, file: Path) -> None:
        """`path` is its name on the server."""
        self.path, self._file, self._position = path, file, 0

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        return size_of(self._file)

    def restart(self) -> None:
        """Yield the first row next."""
        self._position = 0

    def records(self) -> Iterator[Logged]:
        """Yield the complete rows behind those that were yielded before. Raises OSError."""
        with open_regular(self._file) as content:
            header = content.readline(MAX_LINE_BYTES)
            names = [name.strip() for name in _cells(header)]
            if not header.endswith(b"\n") or not _is_table(names):
                return
            self._position = max(self._position, content.tell())
            content.seek(self._position)
            wall = self._file.stat().st_mtime
            while (line := content.readline(MAX_LINE_BYTES)).endswith(b"\n"):
                self._position = content.tell()
                if points := list(self._points(dict(zip(names, _cells(line), strict=False)), wall)):
                    yield Logged(self._position, str(self._file), points)

    def settings(self, run: str) -> dict[str, Any]:
        """Return nothing: such a file holds values alone."""
        return {}

    def _points(self, row: Mapping[str, str], wall: float) -> Iterator[LoggedPoint]:
        by_name = {name.lower(): cell for name, cell in row.items()}
        step = _number(next(by_name[name] for name in STEPS if name in by_name))
        if step is None or not step.is_integer():
            return
        for name, cell in row.items():
            value = None if name.lower() in NO_VALUES else _number(cell)
            if name and value is not None:
                yield LoggedPoint(f"{self._file.stem}:{name}", int(step), value, wall)


def _cells(line: bytes) -> list[str]:
    return next(csv.reader([line.decode(errors="replace").strip()]), [])


def _is_table(names: list[str]) -> bool:
    return 2 <= len(names) <= MAX_COLUMNS and not set(STEPS).isdisjoint(name.lower() for name in names)


def _number(text: str) -> float | None:
    """Return the number in a cell; None for other text and for what is too large to be one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isinf(value) and "inf" not in text.lower() else value
