"""Infer series from a script's output: complete lines of a log become points."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.masking.values import ValueMask
from domain.messages import Point
from domain.series.printed_pattern import PrintedPattern, clean
from worker.streams.events import EventBytes
from worker.streams.printed_beside import step_beside
from worker.streams.printed_line import (
    MAX_STEP,
    RATE_TAG,
    PrintedLine,
    TrainingPosition,
    header_position,
    read_line,
)
from worker.streams.printed_table import PrintedTables
from worker.streams.printed_unread import UnreadLines


class PrintedLines:
    """Parse one log in order; keeps a few numbers of it and no text."""

    def __init__(
        self,
        tables: PrintedTables | None = None,
        rank: int = 0,
        pattern: PrintedPattern | None = None,
        beside: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`tables`: those of the same rank's other stream; lines that name another `rank` are not read; lines that fit
        a person's `pattern` are read by it alone; `beside`: the step that the other stream tells now."""
        self._beside, self._places, self._placed_until = beside, iter(list[int]()), 0
        self._pattern, self._fitting = pattern, 0
        self._tables, self._rank = PrintedTables() if tables is None else tables, rank
        self._validation: PrintedLine | None = None
        """The last line of a validation that is not at its end."""
        self.unread = UnreadLines()
        self._of: int | None = None
        self._total: int | None = None
        self._epochs: int | None = None
        self._counters: dict[str, _StepCounter] = {}
        self._tags: set[str] = set()
        self._step_tags: set[str] = set()
        """Tags of lines that name their own step."""
        self._bar_values: dict[str, float] = {}
        self._shown_by_bar: dict[str, dict[str, float]] = {}
        self._early_bars: set[str] = set()
        """Counters of bars that show the values of each batch before they count it."""
        self._header: TrainingPosition | None = None
        self._is_header_used = False
        self._step: int | None = None
        self._epoch: float | None = None
        self._in_traceback = self._in_long_line = self._has_fractions = False

    def feed(self, data: bytes, wall: float, *, final: bool = False) -> tuple[int, dict[str, list[Point]]]:
        """Parse complete lines; return (bytes used, series). A progress bar's line counts when it is overwritten.

        Pass unused bytes again with those that follow them; `final`: nothing follows.
        """
        end = len(data) if final else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        lines, remainder = data[:end], data[end:]
        if self._in_long_line and lines:
            line_end = _ENDS.search(lines)
            self._in_long_line = line_end is None
            lines = lines[line_end.end() :] if line_end else b""
        series: dict[str, list[Point]] = {}
        parsed = list(_without_stale_bars(self._parse_lines(lines), _unfinished(remainder)))
        self._places = self._places_beside(parsed)
        for line in parsed:
            self._take(line, wall, series)
        if final and self._validation is not None:
            self._add_points(self._validation, wall, series)
            self._validation = None
        if len(remainder) > MAX_LINE_BYTES:
            text = remainder.lstrip(DOT)
            self._in_long_line = self._in_long_line or len(text) > MAX_READ_BYTES
            end = len(data) if self._in_long_line else len(data) - len(text)
        return end, series

    def skip_line(self) -> None:
        """Skip the next bytes up to a line's end: they begin in the middle of a line."""
        self._in_long_line = True

    # -- lines ---------------------------------------------------------------------------------

    def _parse_lines(self, data: bytes) -> Iterator[PrintedLine]:
        reads_all = self._pattern is not None
        if not (reads_all or self._in_traceback or self._tables or _HINT.search(data)):
            return
        for line in map(_without_dots, _ENDS.split(data)):
            is_read = 0 < len(line) <= MAX_READ_BYTES and (
                reads_all or self._in_traceback or self._tables or _HINT.search(line)
            )
            text = line.decode(errors="replace") if is_read else ""
            parsed = (self._read_by_pattern(text) or self._read(text)) if is_read else None
            if parsed is not None:
                yield parsed

    def _read_by_pattern(self, line: str) -> PrintedLine | None:
        """Read a line that fits the pattern; one that names neither step nor epoch is the 0th, 1st, 2nd of them."""
        if self._pattern is None or (read := self._pattern.read(line, self._rank)) is None:
            return None
        step = self._fitting if self._pattern.is_counted else read.step
        self._fitting += 1
        position = TrainingPosition(step, epoch=read.epoch, epoch_is_fraction=read.epoch_is_fraction)
        return PrintedLine(position, read.values, "pattern")

    def _read(self, line: str) -> PrintedLine | None:
        text = clean(line, self._rank)
        if text is None:
            return None
        if text.lstrip().startswith("Traceback (most recent call last)"):
            self._in_traceback = True
            return None
        if self._in_traceback:
            # Its frames are indented; the first line that is not names the exception.
            self._in_traceback = not text or text.startswith(" ")
            return None
        if (header := header_position(text)) is not None:
            return self._of_header(header)
        if (row := self._tables.read(text)) is not None:
            return row
        parsed = read_line(text, None if self._header is None else int(self._header.epoch or 0))
        self.unread.take(text, parsed)
        return None if parsed is None else self._under_header(parsed)

    def _of_header(self, header: TrainingPosition) -> PrintedLine:
        """Return the number of epochs, and the epoch of the header before, which has ended, if no line told it."""
        before, is_told = self._header, self._is_header_used
        self._header, self._is_header_used = header, False
        epoch = None if before is None or is_told else before.epoch
        return PrintedLine(TrainingPosition(epoch=epoch, epochs=header.epochs), {}, "header")

    def _under_header(self, line: PrintedLine) -> PrintedLine:
        """Return the line with the number of epochs that the header above it names."""
        if self._header is None or line.position.epoch != self._header.epoch:
            return line
        self._is_header_used = True
        epochs = line.position.epochs or self._header.epochs
        return replace(line, position=replace(line.position, epochs=epochs))

    # -- points --------------------------------------------------------------------------------

    def _take(self, line: PrintedLine, wall: float, series: dict[str, list[Point]]) -> None:
        """Add a line's points; of a validation that prints its way, those of its last line."""
        held, self._validation = self._validation, None
        if held is not None and held.counter != line.counter:
            self._add_points(held, wall, series)
        if self._is_way_of_validation(line):
            self._validation = line
        elif (placed := self._placed(line)) is not None:
            self._add_points(placed, wall, series)

    def _placed(self, line: PrintedLine) -> PrintedLine | None:
        """Place a bar that shows values before it counts their batch one further; None where it shows them again."""
        step, of = line.position.step, line.position.of
        if not line.is_bar or step is None:
            return line
        values = {tag: value for tag, value in line.values.items() if not tag.endswith(RATE_TAG)}
        is_new = self._shown_by_bar.get(line.counter) != values
        self._shown_by_bar[line.counter] = values
        if step == 0 and is_new:
            self._early_bars.add(line.counter)
        if line.counter not in self._early_bars:
            return line
        following = replace(line.position, step=min(step + 1, of or step + 1))
        return replace(line, position=following) if is_new else None

    @staticmethod
    def _is_way_of_validation(line: PrintedLine) -> bool:
        position = line.position
        is_own = position.in_epoch and not line.is_bar and line.phase not in (None, "train")
        return is_own and (position.step or 0) < (position.of or 0)

    def _add_points(self, line: PrintedLine, wall: float, series: dict[str, list[Point]]) -> None:
        step = self._global_step(line)
        if not 0 <= step < MAX_STEP:
            return
        position = {**self._new_epoch(line), **self._new_epochs(line), **self._new_total(line)}
        for tag, value in {**self._kept_apart(line), **position}.items():
            if tag not in self._tags:
                if len(self._tags) >= MAX_TAGS:
                    continue
                self._tags.add(tag)
            if line.is_bar and tag.startswith(("val/", "eval/", "test/")):
                # A bar keeps showing the last validation's result.
                if self._bar_values.get(tag) == value:
                    continue
                self._bar_values[tag] = value
            series.setdefault(tag, []).append((step, value, wall))

    def _kept_apart(self, line: PrintedLine) -> Mapping[str, float]:
        """Return the values; those of a whole epoch under a name of their own where its steps have the same ones."""
        if line.position.step is not None:
            self._step_tags.update(line.values)
            return line.values
        if self._step is None:
            return line.values
        return {f"epoch/{tag}" if tag in self._step_tags else tag: value for tag, value in line.values.items()}

    def _new_epochs(self, line: PrintedLine) -> dict[str, float]:
        """Return the number of epochs of the whole training, where lines say it: `Epoch 3/8`."""
        epochs = line.position.epochs
        if not epochs or epochs == self._epochs or line.phase not in (None, "train"):
            return {}
        if epochs < (line.position.epoch or 0):
            return {}
        self._epochs = epochs
        return {TOTAL_EPOCHS_TAG: float(epochs)}

    def _new_epoch(self, line: PrintedLine) -> dict[str, float]:
        """Return the printed epoch once for each; a validation may count its own epochs."""
        epoch = line.position.epoch
        if epoch is None or epoch == self._epoch or line.phase not in (None, "train"):
            return {}
        self._epoch = epoch
        return {EPOCH_TAG: float(epoch)}

    def _new_total(self, line: PrintedLine) -> dict[str, float]:
        """Return the number of steps of the whole training, where lines say it: `step 10/1000`."""
        position = line.position
        if position.of is None or line.phase not in (None, "train"):
            return {}
        is_whole = not position.in_epoch and position.epoch is None and not line.is_bar
        total = position.of if is_whole else position.of * (position.epochs or 0)
        if not total or total == self._total or not position.of >= (position.step or 0):
            return {}
        self._total = total
        return {TOTAL_STEPS_TAG: float(total)}

    def _global_step(self, line: PrintedLine) -> int:
        position = line.position
        if position.step is not None and self._counts_validation(line):
            return self._step or 0
        if position.step is not None:
            step = self._counters.setdefault(line.counter, _StepCounter()).step(position, line.is_bar)
            if line.phase in (None, "train"):
                self._step, self._of = step, position.of
            return step
        if self._step is not None:
            return self._step  # printed at the end of an epoch whose steps were printed
        epoch = position.epoch or 0.0
        self._has_fractions = self._has_fractions or position.epoch_is_fraction  # 0.5, then 1
        return self._step_of_fraction(epoch) if self._has_fractions else int(epoch)

    def _step_of_fraction(self, epoch: float) -> int:
        """Place a line that names its epoch alone, which may be rounded: by the bar beside it, else by the epoch."""
        if (place := next(self._places, None)) is None:
            return round(epoch * EPOCH_SCALE)
        self._placed_until = place
        return place

    def _places_beside(self, lines: Sequence[PrintedLine]) -> Iterator[int]:
        """Return places for those of new lines that name their epoch alone: evenly spaced up to the bar beside them."""
        alone = [line.position for line in lines if line.position.step is None and line.position.epoch is not None]
        has_fractions = self._has_fractions or any(position.epoch_is_fraction for position in alone)
        if not alone or not has_fractions or (reached := self._beside()) is None:
            return iter(())
        way = max(0, reached - self._placed_until)
        return iter([self._placed_until + round(way * at / len(alone)) for at in range(1, len(alone) + 1)])

    def _counts_validation(self, line: PrintedLine) -> bool:
        """Whether the line counts batches of a validation; it stands at the training's step."""
        if self._step is None or line.phase in (None, "train"):
            return False
        position = line.position
        has_other_length = position.of is not None and position.of != self._of
        return position.in_epoch or has_other_length or (position.step or 0) < self._step


MAX_LINE_BYTES = 64 * 1024
"""A longer line is skipped: no script prints its loss in one."""
DOT, LEAST_DOTS = b".", 3
"""A script that prints a dot a batch logs in the same line after the dots, which do not count."""
MAX_READ_BYTES = 4096
"""A longer line is not parsed: it is a dump of something."""
MAX_TAGS = 200
RECALL_BYTES = 4 * 1024 * 1024
"""Bytes before the offset that are read again after a restart."""
MAX_BEHIND_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
EPOCH_TAG = "epoch"
TOTAL_STEPS_TAG, TOTAL_EPOCHS_TAG = "train/total_steps", "train/total_epochs"
EPOCH_SCALE = 1000
"""Steps per epoch for a script that prints only fractions of an epoch: epoch 0.25 is step 250."""
_ENDS = re.compile(rb"[\r\n]+")
_HINT = re.compile(
    rb"(?i:step|epoch|ep\b|iter|it[ :=\d/]|batch|update|episode|\bclass\b|loss)|\d[\])]|/s|/it|\xe2\x94\x81|\d ?\["
    rb"|Traceback|[:=]\s*[\[(~]?[-+]?\d*\.\d|\d[\s,;|]+[-+]?\d*\.\d"
)


class PrintedTail:
    """Read a log from an offset on, like an EventTail."""

    def __init__(
        self,
        path: Path,
        offset: int = 0,
        clock: Clock = SYSTEM_CLOCK,
        tables: PrintedTables | None = None,
        rank: int = 0,
        pattern: PrintedPattern | None = None,
        mask: ValueMask | None = None,
    ) -> None:
        self.path, self.offset, self.final = path, offset, False
        self._clock, self._mask = clock, mask or ValueMask()
        self._new_lines = partial(PrintedLines, tables, rank, pattern, partial(step_beside, path))
        self._recall_bytes = sys.maxsize if pattern and pattern.is_counted else RECALL_BYTES
        self._lines, self._read_to = self._new_lines(), 0

    @property
    def unread(self) -> UnreadLines:
        """The lines with values that no rule reads."""
        return self._lines.unread

    def read(self, max_bytes: int = 256 * 1024) -> EventBytes:
        """Read the next complete lines, about `max_bytes`; `offset` moves past them."""
        start = self.offset
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return EventBytes(start, start, notice=f"{self.path.name} could not be read: {error.strerror}")
        try:
            if self._read_to != start:
                self._recall(fd, start)
            unread = os.fstat(fd).st_size - start
            if unread > MAX_BEHIND_BYTES:
                return self._skip(unread)
            series = self._feed(fd, max_bytes, self.final)
        finally:
            os.close(fd)
        self.offset = self._read_to
        return EventBytes(start, self.offset, series)

    def _recall(self, fd: int, end: int) -> None:
        """Read again what was read before a restart, without points: it says where the epoch began."""
        self._lines, self._read_to = self._new_lines(), max(0, end - self._recall_bytes)
        if self._read_to:
            self._lines.skip_line()
        previous = -1
        while previous < self._read_to < end:
            previous = self._read_to
            self._feed(fd, min(PIECE_BYTES, end - previous), final=False)
        self._read_to = end

    def _skip(self, unread: int) -> EventBytes:
        """Skip most of a log that grows faster than it is read, so that it does not delay the attempt's end."""
        start, self.offset = self.offset, self.offset + unread - RECALL_BYTES
        self._read_to = self.offset
        self._lines.skip_line()
        notice = f"{self.path.name} grew by {unread} bytes: no series are read from most of them"
        return EventBytes(start, self.offset, notice=notice)

    def _feed(self, fd: int, max_bytes: int, final: bool) -> dict[str, list[Point]]:
        data = self._mask.content(os.pread(fd, max_bytes, self._read_to))
        used, series = self._lines.feed(data, self._clock.wall(), final=final and len(data) < max_bytes)
        self._read_to += used
        return series


@dataclass
class _StepCounter:
    """One counter of a script: turns steps that restart with each epoch into steps of the whole training."""

    last: TrainingPosition | None = None
    base: int = 0
    gap: int = 0
    restarts: bool = False
    first: int = 0
    """The lowest step that it began with: a step from there again begins the next epoch."""

    def step(self, position: TrainingPosition, is_bar: bool) -> int:
        """Return the step in the whole training."""
        raw, last = position.step or 0, self.last
        if last is None or last.step is None or (position.epoch or 0) < (last.epoch or 0):
            self.restarts = position.in_epoch or _looks_in_epoch(position)
            self.base = self._epochs_before(position) * (position.of or 0) if self.restarts else 0
        elif passed := self._epochs_passed(position, last, is_bar):
            if position.in_epoch or self.restarts or raw <= last.step:
                self.restarts = True
                self.base += passed * (last.of or last.step + (self.gap if raw == 0 else 0))
        elif raw > last.step:
            self.gap = raw - last.step
        self.first = raw if last is None else min(self.first, raw)
        self.last = position
        return self.base + raw

    @staticmethod
    def _epochs_before(position: TrainingPosition) -> int:
        epoch = int(position.epoch or 0)
        return epoch if position.from_zero else max(0, epoch - 1)

    def _epochs_passed(self, position: TrainingPosition, last: TrainingPosition, is_bar: bool) -> int:
        if position.epoch is None or last.epoch is None:
            goes_back = (position.step or 0) < (last.step or 0)
            return int(goes_back and (is_bar or (position.step or 0) <= self.first))
        return int(position.epoch) - int(last.epoch)


def _looks_in_epoch(position: TrainingPosition) -> bool:
    """Whether the step restarts with each epoch: at `epoch 5/10 step 100/600` a global step would be larger."""
    if not position.of or not position.epochs or position.epoch is None or position.epoch_is_fraction:
        return False
    return (position.step or 0) < 0.9 * position.of * (int(position.epoch) - 1) / position.epochs


def _without_dots(line: bytes) -> bytes:
    return line.lstrip(DOT) if line.startswith(DOT * LEAST_DOTS) else line


def _without_stale_bars(lines: Iterator[PrintedLine], unfinished: PrintedLine | None) -> Iterator[PrintedLine]:
    """Yield the lines without bars that are redrawn at the same count: the last picture counts."""
    previous: PrintedLine | None = None
    for line in lines:
        if previous is not None and not _is_redrawn(previous, line):
            yield previous
        previous = line
    if previous is not None and not (unfinished and _is_redrawn(previous, unfinished)):
        yield previous


def _is_redrawn(before: PrintedLine, after: PrintedLine) -> bool:
    return before.is_bar and after.is_bar and (before.counter, before.position) == (after.counter, after.position)


def _unfinished(data: bytes) -> PrintedLine | None:
    if not data or len(data) > MAX_READ_BYTES:
        return None
    text = clean(data.decode(errors="replace"))
    return read_line(text) if text else None
