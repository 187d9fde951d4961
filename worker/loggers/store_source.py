"""A logger's store on the disk as a source of points: named, of this attempt, each exactly once."""

from __future__ import annotations

import math
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from domain.messages import Point, PointBatch, PointKind
from domain.text.json_values import storable
from worker.loggers.observed import ObservedRuns
from worker.loggers.shared_names import SharedNames
from worker.loggers.wandb_run import FoundPoint
from worker.streams.events import Gap
from worker.streams.omissions import Omissions

MAX_RECORDS = 4096
"""Of one batch."""
SECOND_HAND = frozenset({"trainer", "csv"})
"""What a framework keeps of the values that it passes on to loggers: read only where there is no logger."""
INFERRED = frozenset({"csv"})
"""Files of the script's own, which are believed like what it prints."""
MAX_NAME = 500
"""Characters; a series with a longer name is left out, as by the probe."""


@dataclass(frozen=True)
class Logged:
    """One record of a store that holds points."""

    end: int
    """Offset behind it."""
    run: str
    """Identifies the logger's run, as the probe would note it."""
    points: Sequence[FoundPoint]
    gaps: Sequence[Gap] = ()
    """Bytes before it, or at the end of the store, that should be records and cannot be read."""


class LoggerStore(Protocol):
    """A growing file of one logger, which may hold several of its runs."""

    logger: str
    path: str
    """Its name on the server."""

    @property
    def size_bytes(self) -> int:
        """Size of the file now, or the offset of its last record; 0 if there is none."""
        ...

    def records(self) -> Iterator[Logged]:
        """Yield the complete records behind those that were yielded before. Raises OSError, sqlite3.Error."""
        ...

    def restart(self) -> None:
        """Yield the first record next."""
        ...

    def settings(self, run: str) -> dict[str, Any]:
        """Return the hyperparameters, tags and the like of a run as they are now. Raises OSError, sqlite3.Error."""
        ...


@dataclass(frozen=True)
class Judge:
    """Decides which points count, and under which names."""

    names: SharedNames
    observed: ObservedRuns
    began_at: float
    """When the attempt began, in seconds since the epoch: older points are not its own."""

    def counts(self, logger: str, record: Logged) -> bool:
        """Whether the record is of this attempt, and of a run that the probe does not see."""
        is_own = any(point.wall >= self.began_at for point in record.points)
        if logger in SECOND_HAND and (self.observed.has_any() or self.names.has_others(logger)):
            return False
        return is_own and not self.observed.has(logger, record.run)

    def named(self, logger: str, record: Logged, final: bool) -> list[tuple[str, FoundPoint]] | None:
        """Return the points that count with their names; None if that cannot be said yet."""
        if not self.counts(logger, record):
            return []
        own = [point for point in record.points if point.wall >= self.began_at and _can_be_stored(point)]
        named = [(self.names.name_of(logger, record.run, point, final=final), point) for point in own]
        return None if any(name is None for name, _ in named) else [(n, point) for n, point in named if n]


class StoreSource:
    """One store on its way to the server."""

    generation = 0

    def __init__(self, store: LoggerStore, offset: int, judge: Judge, omissions: Omissions | None = None) -> None:
        self.path, self.logger, self._store, self._judge = store.path, store.logger, store, judge
        self._omissions = omissions
        self._waiting: deque[Logged] = deque()
        """Records that were read and not sent."""
        self._offset, self._size_read, self._is_final = offset, -1, False
        self.runs: set[str] = set()
        """Those that count."""

    @property
    def size_bytes(self) -> int:
        """Size of the store now, or the offset of its last record; 0 if there is none."""
        return self._store.size_bytes

    def finish(self) -> None:
        """Wait for nothing more, neither other files nor the rest of a record: all writers have ended."""
        if not self._is_final:
            self._is_final, self._size_read = True, -1

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read the next records, about `max_bytes`; None if there are none that can be sent now."""
        self._look(max_bytes)
        while self._waiting and self._waiting[0].end <= self._offset:
            self._waiting.popleft()
        end, series = self._offset, dict[str, list[Point]]()
        for record in islice(self._waiting, MAX_RECORDS):
            if end - self._offset >= max_bytes:
                break
            named = self._judge.named(self.logger, record, self._is_final)
            if named is None:
                break
            end = record.end
            for name, point in named:
                series.setdefault(storable(name), []).append((point.step, point.value, point.wall))
        if end == self._offset:
            return None
        start, self._offset = self._offset, end
        source: PointKind = "printed" if self.logger in INFERRED else "events"
        return PointBatch(path=self.path, generation=0, start=start, end=end, source=source, series=series)

    def rewind(self, offset: int) -> None:
        """Continue reading at `offset`."""
        if offset < self._offset:
            self._waiting.clear()
            self._size_read = -1
            self._store.restart()
        self._offset = offset

    def settings(self, run: str) -> Mapping[str, Any]:
        """Return what a run says about itself; nothing if that cannot be read now."""
        try:
            return self._store.settings(run)
        except (OSError, sqlite3.Error):
            return {}

    def _look(self, max_bytes: int) -> None:
        """Read on in the store, if it has grown."""
        size = self._store.size_bytes
        if size == self._size_read or (self._waiting and self._waiting[-1].end - self._offset >= max_bytes):
            return
        with suppress(OSError, sqlite3.Error):  # missing or locked: the next look may find it
            for record in self._store.records():
                self._take(record)
                if record.end - self._offset >= max_bytes:
                    return
            self._size_read = size

    def _take(self, record: Logged) -> None:
        """Keep a record to send; one that was sent before a restart is what others are compared with."""
        if record.run not in self.runs and self._judge.counts(self.logger, record):
            self.runs.add(record.run)
        gaps = [gap for gap in record.gaps if self._is_final or gap.why == "damaged"]
        if record.run in self.runs and self._omissions:
            self._omissions.record_gaps(self.path, self.generation, gaps)
        if record.end > self._offset:
            self._waiting.append(record)
        else:
            self._judge.named(self.logger, record, final=False)


def _can_be_stored(point: FoundPoint) -> bool:
    return point.step.bit_length() <= 63 and math.isfinite(point.wall) and 0 < len(point.name) <= MAX_NAME
