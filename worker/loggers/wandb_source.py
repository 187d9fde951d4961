"""A `.wandb` file as a store that grows: W&B writes it every 15 seconds, or 32 KiB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worker.loggers.store_source import Logged
from worker.loggers.wandb_records import records
from worker.loggers.wandb_run import WandbRows, WandbRun
from worker.streams.events import Gap


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
            yield Logged(self._position, str(self._file), [], tuple(gaps))

    def settings(self, run: str) -> dict[str, Any]:
        """Return hyperparameters, tags and the like, as far as they were read."""
        return self._run.settings


def size_of(file: Path) -> int:
    """Return the size of a file in bytes, 0 if there is none."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
