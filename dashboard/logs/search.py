"""Searches in a stored log, ignoring the case of ASCII letters, a stretch at a time, however long the file is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Read = Callable[[int, int], bytes]
"""(offset, limit) -> at most `limit` bytes of the log from the offset on."""
Finder = Callable[[bytes, int], int]
"""(lowercase stretch, start) -> where the next match begins, or -1."""
STRETCH_BYTES = 1024 * 1024
MOST_SECONDS = 2.0
"""Time limit of a search; the result says where the next search continues."""
SHOWN_BYTES = 400
ERROR_OVERLAP = 200
_ERROR = re.compile(
    rb"traceback \(most recent call last\)|\b(?:error|fatal|critical|exception)\b"
    rb"|\b[\w.]{1,150}(?:error|exception)\b\s*[:(]|segmentation fault|out of memory"
)


@dataclass(frozen=True)
class Hit:
    """A line that contains the text."""

    line: int
    """Line number, from 1."""
    offset: int
    """Offset of the line's first byte."""
    text: str
    """The line; of a long one, the text around the match."""


@dataclass
class SearchResult:
    """The first matching lines, and how far the log was searched."""

    hits: list[Hit] = field(default_factory=list)
    lines: int = 0
    """Number of matching lines in the searched part, also where `hits` has fewer."""
    offset: int = 0
    line: int = 1
    """Where the next search continues."""
    last_hit: int = 0
    """The last matching line's number, which the next search does not count again; 0 without any."""
    is_complete: bool = False
    """Whether the log was searched to its end."""


@dataclass
class _LineCursor:
    """The line that a stretch begins in."""

    line: int
    begins_at: int
    last_hit: int = 0


def find_text(text: str) -> tuple[Finder, int]:
    """A finder of this text, and the number of bytes by which a match may reach into the next stretch."""
    needle = text.encode(errors="replace").lower()
    return lambda stretch, start: stretch.find(needle, start), len(needle) - 1


def find_error(stretch: bytes, start: int) -> int:
    """Find text that reads like an error: a traceback, `ValueError:`, the word error, fatal or exception."""
    match = _ERROR.search(stretch, start)
    return -1 if match is None else match.start()


def search(
    read: Read, size: int, finder: Finder, overlap: int, offset: int = 0, line: int = 1, most: int = 1000,
    stops_at_most: bool = False, last_hit: int = 0, deadline: float | None = None,
) -> SearchResult:  # fmt: skip
    """The matching lines from the start of a line on, without the line `last_hit`.

    Takes at most MOST_SECONDS, or until the deadline of `time.monotonic()`, and a few MiB of memory."""
    result = SearchResult(offset=offset, line=line, last_hit=last_hit)
    cursor, carried, base = _LineCursor(line, offset, last_hit), b"", offset
    deadline = time.monotonic() + MOST_SECONDS if deadline is None else deadline
    while base + len(carried) < size:
        at = base + len(carried)
        piece = read(at, min(STRETCH_BYTES, size - at))
        if not piece:
            break
        stretch, is_last = carried + piece, at + len(piece) >= size
        consumed = _search_stretch(stretch, base, finder, 0 if is_last else overlap, cursor, result, most)
        carried, base = stretch[consumed:], base + consumed
        result.offset, result.line, result.last_hit = cursor.begins_at, cursor.line, cursor.last_hit
        if (stops_at_most and len(result.hits) >= most) or time.monotonic() > deadline:
            break
    result.is_complete = base + len(carried) >= size
    return result


def line_at(read: Read, size: int, line: int) -> Hit | None:
    """The line with this number; None when the log has fewer. Takes at most MOST_SECONDS."""
    remaining, at, deadline = line - 1, 0, time.monotonic() + MOST_SECONDS
    while remaining and at < size and time.monotonic() < deadline:
        piece = read(at, min(STRETCH_BYTES, size - at))
        breaks = piece.count(b"\n")
        if not piece:
            return None
        if breaks >= remaining:
            at += [match.end() for match, _ in zip(re.finditer(b"\n", piece), range(remaining), strict=False)][-1]
            remaining = 0
        else:
            remaining, at = remaining - breaks, at + len(piece)
    return None if remaining or at >= size else Hit(line, at, shown(read(at, SHOWN_BYTES), 0, 0))


def line_number_at(read: Read, size: int, offset: int) -> int | None:
    """The number of the line that begins at an offset; None when counting took more than MOST_SECONDS."""
    line, at, deadline = 1, 0, time.monotonic() + MOST_SECONDS
    while at < min(offset, size) and time.monotonic() < deadline:
        piece = read(at, min(STRETCH_BYTES, offset - at))
        if not piece:
            return None
        line, at = line + piece.count(b"\n"), at + len(piece)
    return line if at == offset else None


def _search_stretch(
    stretch: bytes,
    base: int,
    finder: Finder,
    overlap: int,
    cursor: _LineCursor,
    result: SearchResult,
    most: int,
) -> int:
    """Add the matching lines of one stretch to the result; returns the number of bytes that are done."""
    lowered, searched_to, counted_to = stretch.lower(), 0, 0
    while (at := finder(lowered, searched_to)) >= 0:
        _advance(stretch, base, counted_to, at, cursor)
        if cursor.line != cursor.last_hit:
            cursor.last_hit = cursor.line
            result.lines += 1
            if len(result.hits) < most:
                begin = max(0, cursor.begins_at - base)
                result.hits.append(Hit(cursor.line, cursor.begins_at, shown(stretch, begin, at)))
        counted_to = at
        searched_to = stretch.find(b"\n", at)
        if searched_to < 0:
            break
    consumed = max(counted_to, len(stretch) - overlap)
    _advance(stretch, base, counted_to, consumed, cursor)
    return consumed


def _advance(stretch: bytes, base: int, start: int, end: int, cursor: _LineCursor) -> None:
    """Move the cursor over the lines between two positions of a stretch."""
    breaks = stretch.count(b"\n", start, end)
    if breaks:
        cursor.line += breaks
        cursor.begins_at = base + stretch.rfind(b"\n", start, end) + 1


def shown(stretch: bytes, begin: int, at: int) -> str:
    """The line that contains position `begin` of a stretch; of a long line, the text around the match at `at`."""
    first = begin if at - begin < SHOWN_BYTES // 2 else at - SHOWN_BYTES // 4
    line, _, _ = stretch[first : first + SHOWN_BYTES].partition(b"\n")
    return line.decode(errors="replace").rstrip("\r")
