"""Series inferred from what a script prints: whole lines of a log become points, whatever else it says."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from domain.messages import Point
from worker.streams.events import EventBytes
from worker.streams.printed_line import (
    MAX_STEP,
    PrintedLine,
    TrainingPosition,
    clean,
    header_epoch,
    read_line,
)

MAX_LINE_BYTES = 64 * 1024
"""A longer line is stepped over: no script tells its loss in one."""
MAX_READ_BYTES = 4096
"""A longer line is not looked at: it is a dump of something."""
MAX_TAGS = 200
RECALL_BYTES = 4 * 1024 * 1024
"""So much before the place where reading goes on is read again after a restart."""
MAX_BEHIND_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
EPOCH_TAG = "epoch"
EPOCH_SCALE = 1000
"""Where a script says only that it is at epoch 0.25, that is step 250."""

_ENDS = re.compile(rb"[\r\n]+")
_HINT = re.compile(
    rb"(?i:step|epoch|ep\b|iter|it[ :=\d/]|batch|update|episode)|\d\]|/s|/it|\xe2\x94\x81|\d ?\[|Traceback"
)


class PrintedLines:
    """Understands one log, in its order; remembers a few numbers of it and no text."""

    def __init__(self) -> None:
        self._axes: dict[str, _Axis] = {}
        self._tags: set[str] = set()
        self._shown: dict[str, float] = {}
        self._header: int | None = None
        self._step: int | None = None
        self._epoch: float | None = None
        self._in_traceback = self._in_long_line = self._has_fractions = False

    def feed(self, data: bytes, wall: float, *, final: bool = False) -> tuple[int, dict[str, list[Point]]]:
        """(bytes used, series): whole lines only; a progress bar's line counts when it is overwritten.

        What was not used is given again, with more behind it; `final`: nothing comes behind it.
        """
        end = len(data) if final else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        whole, rest = data[:end], data[end:]
        if self._in_long_line and whole:
            found = _ENDS.search(whole)
            self._in_long_line = found is None
            whole = whole[found.end() :] if found else b""
        series: dict[str, list[Point]] = {}
        for reading in _without_stale_bars(self._readings(whole), _unfinished(rest)):
            self._keep(reading, wall, series)
        if len(rest) > MAX_LINE_BYTES:
            self._in_long_line, end = True, len(data)
        return end, series

    def skip_line(self) -> None:
        """What comes next begins in the middle of a line."""
        self._in_long_line = True

    # -- lines ---------------------------------------------------------------------------------

    def _readings(self, whole: bytes) -> Iterator[PrintedLine]:
        if not self._in_traceback and not _HINT.search(whole):
            return
        for line in _ENDS.split(whole):
            is_read = 0 < len(line) <= MAX_READ_BYTES and (self._in_traceback or _HINT.search(line))
            reading = self._read(line.decode(errors="replace")) if is_read else None
            if reading is not None:
                yield reading

    def _read(self, line: str) -> PrintedLine | None:
        text = clean(line)
        if text is None:
            return None
        if text.lstrip().startswith("Traceback (most recent call last)"):
            self._in_traceback = True
            return None
        if self._in_traceback:
            # Its frames are indented; the first line that is not names the exception.
            self._in_traceback = not text or text.startswith(" ")
            return None
        if (epoch := header_epoch(text)) is not None:
            self._header = epoch
            return None
        return read_line(text, self._header)

    # -- points --------------------------------------------------------------------------------

    def _keep(self, reading: PrintedLine, wall: float, series: dict[str, list[Point]]) -> None:
        step = self._step_of(reading)
        if not 0 <= step < MAX_STEP:
            return
        for tag, value in {**reading.values, **self._new_epoch(reading)}.items():
            if tag not in self._tags:
                if len(self._tags) >= MAX_TAGS:
                    continue
                self._tags.add(tag)
            if reading.is_bar and tag.startswith(("val/", "eval/", "test/")):
                # A bar goes on showing the last validation's result.
                if self._shown.get(tag) == value:
                    continue
                self._shown[tag] = value
            series.setdefault(tag, []).append((step, value, wall))

    def _new_epoch(self, reading: PrintedLine) -> dict[str, float]:
        """The epoch as it was printed, once for each; a validation may count its own."""
        epoch = reading.position.epoch
        if epoch is None or epoch == self._epoch or reading.phase not in (None, "train"):
            return {}
        self._epoch = epoch
        return {EPOCH_TAG: float(epoch)}

    def _step_of(self, reading: PrintedLine) -> int:
        at = reading.position
        if at.step is not None:
            step = self._axes.setdefault(reading.counter, _Axis()).step(at, reading.is_bar)
            if reading.phase in (None, "train"):
                self._step = step
            return step
        if self._step is not None:
            return self._step  # said at the end of an epoch whose steps were told
        epoch = at.epoch or 0.0
        self._has_fractions = self._has_fractions or at.epoch_is_fraction  # 0.5, then 1
        return round(epoch * EPOCH_SCALE) if self._has_fractions else int(epoch)


class PrintedTail:
    """Reads a log from where it stopped; stands in for an EventTail."""

    def __init__(self, path: Path, offset: int = 0, clock: Callable[[], float] = time.time) -> None:
        self.path, self.offset, self.final = path, offset, False
        self._clock = clock
        self._lines, self._read_to = PrintedLines(), 0

    def read(self, max_bytes: int = 256 * 1024) -> EventBytes:
        """The next whole lines, about `max_bytes` of them; `offset` moves behind them."""
        start = self.offset
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return EventBytes(start, start, notice=f"{self.path.name} could not be read: {error.strerror}")
        try:
            if self._read_to != start:
                self._recall(fd, start)
            behind = os.fstat(fd).st_size - start
            if behind > MAX_BEHIND_BYTES:
                return self._skip(behind)
            series = self._feed(fd, max_bytes, self.final)
        finally:
            os.close(fd)
        self.offset = self._read_to
        return EventBytes(start, self.offset, series)

    def _recall(self, fd: int, end: int) -> None:
        """What was read before a restart is read again without points: it tells where the epoch began."""
        self._lines, self._read_to = PrintedLines(), max(0, end - RECALL_BYTES)
        if self._read_to:
            self._lines.skip_line()
        before = -1
        while before < self._read_to < end:
            before = self._read_to
            self._feed(fd, min(PIECE_BYTES, end - before), final=False)
        self._read_to = end

    def _skip(self, behind: int) -> EventBytes:
        """A script that prints faster than this reads must not hold up its own end."""
        start, self.offset = self.offset, self.offset + behind - RECALL_BYTES
        self._read_to = self.offset
        self._lines.skip_line()
        notice = f"{self.path.name} grew by {behind} bytes: no series are read from most of them"
        return EventBytes(start, self.offset, notice=notice)

    def _feed(self, fd: int, max_bytes: int, final: bool) -> dict[str, list[Point]]:
        data = os.pread(fd, max_bytes, self._read_to)
        used, series = self._lines.feed(data, self._clock(), final=final and len(data) < max_bytes)
        self._read_to += used
        return series


@dataclass
class _Axis:
    """One counter of a script: makes a rising step of what begins anew with each epoch."""

    last: TrainingPosition | None = None
    base: int = 0
    gap: int = 0
    restarts: bool = False

    def step(self, at: TrainingPosition, is_bar: bool) -> int:
        """The step in the whole training."""
        raw, last = at.step or 0, self.last
        if last is None or last.step is None or (at.epoch or 0) < (last.epoch or 0):
            self.restarts = at.in_epoch or _looks_in_epoch(at)
            self.base = self._epochs_before(at) * (at.of or 0) if self.restarts else 0
        elif passed := self._epochs_passed(at, last, is_bar):
            if at.in_epoch or self.restarts or raw <= last.step:
                self.restarts = True
                self.base += passed * (last.of or last.step + (self.gap if raw == 0 else 0))
        elif raw > last.step:
            self.gap = raw - last.step
        self.last = at
        return self.base + raw

    @staticmethod
    def _epochs_before(at: TrainingPosition) -> int:
        epoch = int(at.epoch or 0)
        return epoch if at.from_zero and epoch > 1 else max(0, epoch - 1)

    @staticmethod
    def _epochs_passed(at: TrainingPosition, last: TrainingPosition, is_bar: bool) -> int:
        if at.epoch is None or last.epoch is None:
            return int(is_bar and (at.step or 0) < (last.step or 0))
        return int(at.epoch) - int(last.epoch)


def _looks_in_epoch(at: TrainingPosition) -> bool:
    """`epoch 5/10 step 100/600`: a step of all would be further by then."""
    if not at.of or not at.epochs or at.epoch is None or at.epoch_is_fraction:
        return False
    return (at.step or 0) < 0.9 * at.of * (int(at.epoch) - 1) / at.epochs


def _without_stale_bars(
    readings: Iterator[PrintedLine], unfinished: PrintedLine | None
) -> Iterator[PrintedLine]:
    """A bar is drawn when its count moves, and again when its values do: the last picture counts."""
    before: PrintedLine | None = None
    for reading in readings:
        if before is not None and not _is_redrawn(before, reading):
            yield before
        before = reading
    if before is not None and not (unfinished and _is_redrawn(before, unfinished)):
        yield before


def _is_redrawn(one: PrintedLine, other: PrintedLine) -> bool:
    return one.is_bar and other.is_bar and (one.counter, one.position) == (other.counter, other.position)


def _unfinished(rest: bytes) -> PrintedLine | None:
    if not rest or len(rest) > MAX_READ_BYTES:
        return None
    text = clean(rest.decode(errors="replace"))
    return read_line(text) if text else None
