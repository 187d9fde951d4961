"""Logs of several ranks and streams as one, by the lines' time of arrival."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from dashboard.storage.files import ArrivalTimes, Read
from domain.clock import SYSTEM_CLOCK


@dataclass
class LogSource:
    """One of the logs that are merged."""

    rank: int | str
    stream: str
    order: int
    """Its position among logs whose lines arrived at the same time."""
    file_id: int
    read: Read
    size_bytes: int
    times: ArrivalTimes
    is_complete: bool = False
    """Whether nothing more is written to it: then an unterminated last line counts, too."""
    whole_bytes: int = field(init=False)
    """Offset behind the last whole line."""

    def __post_init__(self) -> None:
        self.whole_bytes = self.size_bytes
        if not self.is_complete:
            self.whole_bytes = self.line_start(self.size_bytes)

    def line_start(self, offset: int) -> int:
        """Offset of the first byte of the line that the byte at an offset belongs, or would belong, to."""
        if offset >= self.size_bytes and self.is_complete:
            return self.size_bytes
        end, block = offset, _SHORT_LINE_BYTES
        while end > 0:
            begin, block = max(0, end - block), _BLOCK_BYTES
            line_break = self.read(begin, end - begin).rfind(b"\n")
            if line_break >= 0:
                return begin + line_break + 1
            if offset - begin >= LONGEST_LINE_BYTES:
                return offset
            end = begin
        return 0

    def line_end(self, offset: int) -> int:
        """Offset of the last byte of the line that begins at an offset, usually its line break."""
        begin, last, block = offset, self.whole_bytes - 1, _SHORT_LINE_BYTES
        while begin < last and begin - offset < LONGEST_LINE_BYTES:
            piece, block = self.read(begin, block), _BLOCK_BYTES
            line_break = piece.find(b"\n")
            if line_break >= 0 or not piece:
                return min(begin + max(line_break, 0), last)
            begin += len(piece)
        return min(begin, last)

    def at_ms(self, offset: int) -> int:
        """Time of arrival of the line that begins at an offset, in milliseconds since 1970."""
        return self.times.at_ms(self.times.index_of(self.line_end(offset)))


LONGEST_LINE_BYTES = 1024 * 1024
"""A longer line is split."""
MOST_LINES = 5000
MOST_SECONDS = 2.0
_BLOCK_BYTES = 16 * 1024
_SHORT_LINE_BYTES = 256
"""Length up to which a line is found with one short read."""


@dataclass(frozen=True)
class MergePosition:
    """A position in the merged lines: before the line at an offset of one log."""

    at_ms: int
    order: int
    offset: int


@dataclass(frozen=True)
class Line:
    """A whole line and its origin."""

    rank: int | str
    stream: str
    offset: int
    """Offset of its first byte in its own log."""
    at: float | None
    """When its end arrived, in seconds since 1970; None when unknown."""
    position: MergePosition
    text: str


def position_of(source: LogSource, offset: int) -> MergePosition:
    """The position before the line that begins at an offset of one log."""
    return MergePosition(source.at_ms(offset), source.order, offset)


def offsets_at(sources: Sequence[LogSource], position: MergePosition | None) -> list[int]:
    """The offset in each log at a position; without one, behind each log's last whole line."""
    if position is None:
        return [source.whole_bytes for source in sources]
    return [_offset_at(source, position) for source in sources]


def _offset_at(source: LogSource, position: MergePosition) -> int:
    if source.order == position.order:
        return min(position.offset, source.whole_bytes)
    until_ms = position.at_ms + (source.order < position.order)
    return min(source.line_start(source.times.end_before(until_ms)), source.whole_bytes)


def lines_before(
    sources: Sequence[LogSource], offsets: list[int], most_bytes: int, most_lines: int = MOST_LINES
) -> list[Line]:
    """The last lines before the offsets, in order. Moves the offsets to the first of these lines."""
    deadline, lines = SYSTEM_CLOCK.now() + MOST_SECONDS, 0
    stretches: list[list[Line]] = []
    heap = [_newest(s, number, offsets[number]) for number, s in enumerate(sources) if offsets[number] > 0]
    heapq.heapify(heap)
    while heap and most_bytes > 0 and lines < most_lines and SYSTEM_CLOCK.now() < deadline:
        _, _, number, index = heapq.heappop(heap)
        source, end = sources[number], offsets[number]
        low = min(source.line_start(source.times.begin(index)), end)
        start, content = _last_lines(source, low, end, most_bytes, bool(stretches))
        selected, excess = content[-(most_lines - lines) :], content[: -(most_lines - lines)]
        start += sum(len(line) for line in excess)
        if selected:
            stretches.append(_as_lines(source, index, start, selected))
        most_bytes -= end - start
        lines += len(selected)
        offsets[number] = start
        if start > low:
            break
        if low > 0:
            heapq.heappush(heap, _newest(source, number, low))
    return [line for stretch in reversed(stretches) for line in stretch]


def lines_from(
    sources: Sequence[LogSource], offsets: list[int], most_bytes: int, most_lines: int = MOST_LINES
) -> list[Line]:
    """The first lines from the offsets on, in order. Moves the offsets behind the last of these lines."""
    deadline, selected = SYSTEM_CLOCK.now() + MOST_SECONDS, list[Line]()
    heap = [_oldest(s, number, offsets[number]) for number, s in enumerate(sources) if offsets[number] < s.whole_bytes]
    heapq.heapify(heap)
    while heap and most_bytes > 0 and len(selected) < most_lines and SYSTEM_CLOCK.now() < deadline:
        _, _, number, index = heapq.heappop(heap)
        source, start = sources[number], offsets[number]
        high = min(source.line_start(source.times.end(index)), source.whole_bytes)
        content = _first_lines(source, start, high, most_bytes, bool(selected))[: most_lines - len(selected)]
        selected += _as_lines(source, index, start, content)
        offsets[number] = start + sum(map(len, content))
        most_bytes -= offsets[number] - start
        if offsets[number] < high:
            break
        if high < source.whole_bytes:
            heapq.heappush(heap, _oldest(source, number, high))
    return selected


def _newest(source: LogSource, number: int, offset: int) -> tuple[int, int, int, int]:
    index = source.times.index_of(offset - 1)
    return -source.times.at_ms(index), -source.order, number, index


def _oldest(source: LogSource, number: int, offset: int) -> tuple[int, int, int, int]:
    index = source.times.index_of(source.line_end(offset))
    return source.times.at_ms(index), source.order, number, index


def _last_lines(source: LogSource, low: int, end: int, most_bytes: int, has_more: bool) -> tuple[int, list[bytes]]:
    """Whole lines that end at an offset, and where they begin; part of one that is too long by itself."""
    start = max(low, end - most_bytes)
    content = source.read(start, end - start)
    if start > low:
        cut = content.find(b"\n", 0, -1) + 1
        if not cut and has_more:
            return end, []
        start, content = start + cut, content[cut:]
    return start, _split(content)


def _first_lines(source: LogSource, start: int, high: int, most_bytes: int, has_more: bool) -> list[bytes]:
    content = source.read(start, min(high - start, most_bytes))
    if start + len(content) < high:
        cut = content.rfind(b"\n") + 1
        if not cut and has_more:
            return []
        content = content[: cut or len(content)]
    return _split(content)


def _split(content: bytes) -> list[bytes]:
    """The lines with their line breaks."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _as_lines(source: LogSource, index: int, offset: int, content: Sequence[bytes]) -> list[Line]:
    at_ms, lines = source.times.at_ms(index), []
    for line in content:
        text = line.removesuffix(b"\n").decode(errors="replace")
        position = MergePosition(at_ms, source.order, offset)
        at = at_ms / 1000 if at_ms else None
        lines.append(Line(source.rank, source.stream, offset, at, position, text))
        offset += len(line)
    return lines
