"""A logger's store on the disk as a source of points: named, of this attempt, each exactly once."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import Point, PointBatch, PointKind
from domain.text.json_values import storable
from worker.node.run_files import LOGGERS, is_event_file
from worker.node.state_files import read_object, write_whole
from worker.streams.events import Gap
from worker.streams.json_lines import JsonLines
from worker.streams.omissions import Omissions


class StoreSource:
    """One store on its way to the server."""

    generation = 0

    def __init__(self, store: LoggerStore, offset: int, judge: Judge, omissions: Omissions | None = None) -> None:
        self.path, self.logger, self._store, self._judge = store.path, store.logger, store, judge
        self._omissions = omissions
        self._waiting: deque[Logged] = deque()
        """Records that were read and not sent."""
        self._offset, self._size_read, self._is_final = offset, -1, False
        self._frozen_size: int | None = None
        """Size of the store when its writers had ended: what is added later is not read."""
        self.runs: set[str] = set()
        """Those that count."""

    @property
    def size_bytes(self) -> int:
        """Size of the store now, or the offset of its last record; 0 if there is none."""
        return self._store.size_bytes

    def freeze(self) -> None:
        """Read no record that is added from now on."""
        if self._frozen_size is None:
            with suppress(Exception):  # its reading reports the error, with the file's name
                self._frozen_size = self._store.size_bytes

    def finish(self) -> None:
        """Wait for nothing more, neither other files nor the rest of a record: all writers have ended."""
        if not self._is_final:
            self._is_final, self._size_read = True, -1

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read the next records, about `max_bytes`; None if there are none that can be sent now."""
        if self._frozen_size is not None and self._offset >= self._frozen_size:
            return None
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


MAX_RECORDS = 4096
"""Of one batch."""
SECOND_HAND = frozenset({"trainer", "csv"})
"""What a framework keeps of the values that it passes on to loggers: read only where there is no logger."""
INFERRED = frozenset({"csv"})
"""Files of the script's own, which are believed like what it prints."""
MAX_NAME = 500
"""Characters; a series with a longer name is left out, as by the probe."""


class LoggedPoint(NamedTuple):
    """A value in a series."""

    name: str
    step: int
    value: float
    wall: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Logged:
    """One record of a store that holds points."""

    end: int
    """Offset behind it."""
    run: str
    """Identifies the logger's run, as the probe would note it."""
    points: Sequence[LoggedPoint]
    gaps: Sequence[Gap] = ()
    """Bytes before it, or at the end of the store, that should be records and cannot be read."""
    changed_at: float = -math.inf
    """When a store was written whose end, or all of it, gives no record; in seconds since the epoch."""


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


# The runs of loggers that the probe sees as the script logs: their files are not read a second time.


class ObservedRuns:
    """What the probe of each process noted, in `runs-PID.jsonl`, before a run's first value could reach the disk."""

    def __init__(self, attempt: Path) -> None:
        self._folder = attempt / LOGGERS
        self._files: dict[str, JsonLines] = {}
        self._noted: set[tuple[str, str]] = set()
        self._answers: dict[tuple[str, str], bool] = {}

    def has(self, logger: str, run: str) -> bool:
        """Whether the probe sees this run. Ask when the run has a value, not before: the answer is final."""
        key = (logger, run)
        if key not in self._answers:
            self._read()
            self._answers[key] = key in self._noted
        return self._answers[key]

    def has_any(self) -> bool:
        """Whether the probe has seen any logger."""
        if not self._noted:
            self._read()
        return bool(self._noted)

    def _read(self) -> None:
        for path in sorted(self._folder.glob("runs-*.jsonl")):
            for _, record in self._files.setdefault(path.name, JsonLines(path)).read():
                self._noted.add((str(record.get("logger")), str(record.get("run"))))


class SharedNames:
    """The names of one attempt's series on this node, which survive a restart of the worker."""

    def __init__(self, file: Path, has_event_files: Callable[[], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        state, self._clock = read_object(file), clock
        self._file, self._has_event_files = file, has_event_files
        self._owners: dict[str, str] = dict(state.get("owners", {}))
        self._different: set[str] = set(state.get("different", ()))
        """Names with their logger, once a value differed."""
        self._labels: dict[str, str] = dict(state.get("labels", {}))
        """Run of a logger -> what the names of its own series begin with."""
        self._owned: dict[str, _Owned] = {}
        self._is_unsaved, self._saved_at = False, -math.inf
        self._event_files_until = -math.inf
        """Wall time that event files have reached."""

    def stored(self, batch: PointBatch) -> None:
        """Note points of event files, or of the probe."""
        is_new = bool(batch.series.keys() - self._owners.keys())
        most = min(MAX_STEPS, max(LEAST_STEPS, MAX_POINTS // max(1, len(self._owned))))
        for name, points in batch.series.items():
            if self._owners.setdefault(name, batch.path) == batch.path:
                owned = self._owned.setdefault(name, _Owned())
                for step, value, _ in points:
                    owned.add(step, value, most)
            if is_event_file(batch.path) and points:
                self._event_files_until = max(self._event_files_until, points[-1][2])
        if is_new or self._is_unsaved:
            self._save_in_turn()

    def has_others(self, logger: str) -> bool:
        """Whether a name belongs to event files, the probe or another logger than this one."""
        own = {run for run, label in self._labels.items() if label.partition(" ")[0] == logger}
        return bool(set(self._owners.values()) - own)

    def name_of(self, logger: str, run: str, point: LoggedPoint, *, final: bool) -> str | None:
        """The name to store a point under, "" if another file has it; None if that cannot be said yet."""
        own, may_wait = self._own_name(logger, run, point.name), self._may_wait(point, final)
        if point.name not in self._owners:
            if may_wait and self._has_event_files() and self._event_files_until < point.wall:
                return None
            self._owners[point.name] = run
            self._save()
        owned = self._owned.setdefault(point.name, _Owned())
        if self._owners[point.name] == run:
            owned.add(point.step, point.value)
            return point.name
        if own in self._different:
            return own
        if may_wait and point.step > owned.reached:
            return None
        if _is_equal(owned.values.get(point.step), point.value) or owned.is_forgotten(point.step):
            return ""
        self._different.add(own)
        self._save()
        return own

    def _may_wait(self, point: LoggedPoint, final: bool) -> bool:
        return not final and self._clock.wall() - point.wall < PATIENCE_S

    def _own_name(self, logger: str, run: str, name: str) -> str:
        if run not in self._labels:
            is_first = logger not in self._labels.values()
            self._labels[run] = logger if is_first else f"{logger} {Path(run).stem}"
        return f"{self._labels[run]}:{name}"

    def _save_in_turn(self) -> None:
        """Save at most once in a while: of thousands of new names, each would write the names of all before."""
        self._is_unsaved = self._clock.now() < self._saved_at + SAVE_EVERY_S
        if not self._is_unsaved:
            self._save()
            self._saved_at = self._clock.now()

    def _save(self) -> None:
        state = {
            "owners": self._owners, "different": sorted(self._different), "labels": self._labels,
        }  # fmt: skip
        with suppress(OSError):  # a full disk: decided again after a restart
            write_whole(self._file, json.dumps(state))


@dataclass(frozen=True)
class Judge:
    """Decides which points count, and under which names."""

    names: SharedNames
    observed: ObservedRuns
    began_at: float
    """When the attempt began, in seconds since the epoch: older points are not its own."""

    def counts(self, logger: str, record: Logged) -> bool:
        """Whether the record is of this attempt, and of a run that the probe does not see."""
        is_own = any(wall >= self.began_at for wall in (record.changed_at, *(point.wall for point in record.points)))
        if logger in SECOND_HAND and (self.observed.has_any() or self.names.has_others(logger)):
            return False
        return is_own and not self.observed.has(logger, record.run)

    def named(self, logger: str, record: Logged, final: bool) -> list[tuple[str, LoggedPoint]] | None:
        """Return the points that count with their names; None if that cannot be said yet."""
        if not self.counts(logger, record):
            return []
        own = [point for point in record.points if point.wall >= self.began_at and _can_be_stored(point)]
        named = [(self.names.name_of(logger, record.run, point, final=final), point) for point in own]
        return None if any(name is None for name, _ in named) else [(n, point) for n, point in named if n]


def _can_be_stored(point: LoggedPoint) -> bool:
    return point.step.bit_length() <= 63 and math.isfinite(point.wall) and 0 < len(point.name) <= MAX_NAME


# Name the series of loggers that are read from the disk: equal values are one series, others say their logger.
#
# The first to log a name owns it: event files, what the probe saw, or one run of a logger on the disk. Another one's
# point is compared with the owner's of the same step; after the first difference its series is `LOGGER:NAME`.

PATIENCE_S = 150.0
"""Seconds for which a point waits for what another file gets later: event files are written every two minutes."""
MAX_STEPS = 4096
"""Steps of a series that others are compared with."""
MAX_POINTS, LEAST_STEPS = 400_000, 32
"""Points remembered of all series together; with many series, fewer steps of each."""
SAVE_EVERY_S = 1.0
CLOSE = 1e-6
"""Relative difference of equal values: event files hold 32 bits."""


class _Owned:
    """The last points of a name's owner."""

    def __init__(self) -> None:
        self.values: OrderedDict[int, float] = OrderedDict()  # forgets its first entry in constant time
        self.reached = -math.inf

    def add(self, step: int, value: float, most: int = MAX_STEPS) -> None:
        """Add a point, keeping `most`; of two at one step the later one counts."""
        self.values[step], self.reached = value, max(self.reached, step)
        while len(self.values) > most:
            self.values.popitem(last=False)

    def is_forgotten(self, step: int) -> bool:
        """Whether the point of a step may have been among those before the ones that are remembered."""
        return not self.values or step < min(self.values)


def _is_equal(own: float | None, value: float) -> bool:
    if own is None or own == value:
        return own is not None
    return (math.isnan(own) and math.isnan(value)) or math.isclose(own, value, rel_tol=CLOSE)


def size_of(file: Path) -> int:
    """Return the size of a file in bytes, 0 if there is none."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
