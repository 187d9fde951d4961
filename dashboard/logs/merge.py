"""Logs of several ranks and streams as one, by the time at which their lines arrived."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dashboard.storage.log_times import ArrivalTimes, Read

LONGEST_LINE_BYTES = 1024 * 1024
"""A line longer than that is given in pieces."""
MOST_LINES = 5000
MOST_SECONDS = 2.0
_BLOCK_BYTES = 16 * 1024
_SHORT_LINE_BYTES = 256
"""Most lines are: a stretch mostly ends with one."""


@dataclass(frozen=True)
class MergePosition:
    """A place in the merged lines: before the line at an offset of one log."""

    at_ms: int
    order: int
    offset: int


@dataclass(frozen=True)
class Line:
    """A whole line, and where it comes from."""

    rank: int | str
    stream: str
    offset: int
    """Of its first byte in its own log."""
    at: float | None
    """When its end arrived, in seconds since 1970; None where nobody knows."""
    position: MergePosition
    text: str


@dataclass
class LogSource:
    """One of the logs that are merged."""

    rank: int | str
    stream: str
    order: int
    """Its place among those whose lines arrived at one time."""
    file_id: int
    read: Read
    size_bytes: int
    times: ArrivalTimes
    is_complete: bool = False
    """Nothing more is written to it: what has no line break at its end is a line too."""
    whole_bytes: int = field(init=False)
    """How far whole lines reach."""

    def __post_init__(self) -> None:
        self.whole_bytes = self.size_bytes
        if not self.is_complete:
            self.whole_bytes = self.line_start(self.size_bytes)

    def line_start(self, offset: int) -> int:
        """Where the line begins that the byte at an offset belongs to, or would belong to."""
        if offset >= self.size_bytes and self.is_complete:
            return self.size_bytes
        end, block = offset, _SHORT_LINE_BYTES
        while end > 0:
            begin, block = max(0, end - block), _BLOCK_BYTES
            found = self.read(begin, end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            if offset - begin >= LONGEST_LINE_BYTES:
                return offset
            end = begin
        return 0

    def line_end(self, offset: int) -> int:
        """Offset of the last byte of the line that begins at an offset, its line break mostly."""
        begin, last, block = offset, self.whole_bytes - 1, _SHORT_LINE_BYTES
        while begin < last and begin - offset < LONGEST_LINE_BYTES:
            piece, block = self.read(begin, block), _BLOCK_BYTES
            found = piece.find(b"\n")
            if found >= 0 or not piece:
                return min(begin + max(found, 0), last)
            begin += len(piece)
        return min(begin, last)

    def at_ms(self, offset: int) -> int:
        """When the line that begins at an offset had arrived, in milliseconds since 1970."""
        return self.times.at_ms(self.times.index_of(self.line_end(offset)))


def position_of(source: LogSource, offset: int) -> MergePosition:
    """The place before the line that begins at an offset of one log."""
    return MergePosition(source.at_ms(offset), source.order, offset)


def offsets_at(sources: Sequence[LogSource], position: MergePosition | None) -> list[int]:
    """How far each log lies before a position; without one, how far whole lines reach."""
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
    """The last lines before the offsets, in order. Moves the offsets to the first of them."""
    until, lines = time.monotonic() + MOST_SECONDS, 0
    stretches: list[list[Line]] = []
    heap = [_newest(s, place, offsets[place]) for place, s in enumerate(sources) if offsets[place] > 0]
    heapq.heapify(heap)
    while heap and most_bytes > 0 and lines < most_lines and time.monotonic() < until:
        _, _, place, index = heapq.heappop(heap)
        source, end = sources[place], offsets[place]
        low = min(source.line_start(source.times.begin(index)), end)
        start, content = _last_lines(source, low, end, most_bytes, bool(stretches))
        found, dropped = content[-(most_lines - lines) :], content[: -(most_lines - lines)]
        start += sum(len(line) for line in dropped)
        if found:
            stretches.append(_as_lines(source, index, start, found))
        most_bytes -= end - start
        lines += len(found)
        offsets[place] = start
        if start > low:
            break
        if low > 0:
            heapq.heappush(heap, _newest(source, place, low))
    return [line for stretch in reversed(stretches) for line in stretch]


def lines_from(
    sources: Sequence[LogSource], offsets: list[int], most_bytes: int, most_lines: int = MOST_LINES
) -> list[Line]:
    """The first lines from the offsets on, in order. Moves the offsets behind the last of them."""
    until, result = time.monotonic() + MOST_SECONDS, list[Line]()
    heap = [_oldest(s, p, offsets[p]) for p, s in enumerate(sources) if offsets[p] < s.whole_bytes]
    heapq.heapify(heap)
    while heap and most_bytes > 0 and len(result) < most_lines and time.monotonic() < until:
        _, _, place, index = heapq.heappop(heap)
        source, start = sources[place], offsets[place]
        high = min(source.line_start(source.times.end(index)), source.whole_bytes)
        content = _first_lines(source, start, high, most_bytes, bool(result))[: most_lines - len(result)]
        result += _as_lines(source, index, start, content)
        offsets[place] = start + sum(map(len, content))
        most_bytes -= offsets[place] - start
        if offsets[place] < high:
            break
        if high < source.whole_bytes:
            heapq.heappush(heap, _oldest(source, place, high))
    return result


def _newest(source: LogSource, place: int, offset: int) -> tuple[int, int, int, int]:
    index = source.times.index_of(offset - 1)
    return -source.times.at_ms(index), -source.order, place, index


def _oldest(source: LogSource, place: int, offset: int) -> tuple[int, int, int, int]:
    index = source.times.index_of(source.line_end(offset))
    return source.times.at_ms(index), source.order, place, index


def _last_lines(
    source: LogSource, low: int, end: int, most_bytes: int, has_more: bool
) -> tuple[int, list[bytes]]:
    """Whole lines that end at an offset, and where they begin; a piece of one that alone is too long."""
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
    """Lines with their breaks."""
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
