"""Looks for a text in a stored log: case of ASCII letters aside, a stretch at a time, however long the file is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Read = Callable[[int, int], bytes]
"""Bytes of the log from an offset, at most so many."""
Finder = Callable[[bytes, int], int]
"""Where the next match begins in a lowered stretch, or -1."""
STRETCH_BYTES = 1024 * 1024
MOST_SECONDS = 2.0
"""After these the answer says how far it came; whoever wants more asks from there."""
SHOWN_BYTES = 400
ERROR_OVERLAP = 200
_ERROR = re.compile(
    rb"traceback \(most recent call last\)|\b(?:error|fatal|critical|exception)\b"
    rb"|\b[\w.]{1,150}(?:error|exception)\b\s*[:(]|segmentation fault|out of memory"
)


@dataclass(frozen=True)
class Hit:
    """A line in which the text stands."""

    line: int
    """From 1."""
    offset: int
    """Of the line's first byte."""
    text: str
    """The line, or what is around the match in a long one."""


@dataclass
class Found:
    """The first lines that match, and how far the log was looked through."""

    hits: list[Hit] = field(default_factory=list)
    lines: int = 0
    """That match in what was looked through, also where not all of them are in `hits`."""
    offset: int = 0
    line: int = 1
    """Where to go on: all before was looked through."""
    is_complete: bool = False
    """It was looked through to its end."""


@dataclass
class _Place:
    """The line that a stretch begins in."""

    line: int
    begins_at: int
    last_hit: int = 0


def find_text(text: str) -> tuple[Finder, int]:
    """Finds a text; with it, how many bytes of a stretch may belong to a match that goes on."""
    wanted = text.encode(errors="replace").lower()
    return lambda stretch, start: stretch.find(wanted, start), len(wanted) - 1


def find_error(stretch: bytes, start: int) -> int:
    """Finds what reads like an error: a traceback, `ValueError:`, the word error, fatal or exception."""
    match = _ERROR.search(stretch, start)
    return -1 if match is None else match.start()


def search(
    read: Read, size: int, finder: Finder, overlap: int, offset: int = 0, line: int = 1, most: int = 1000,
    stops_at_most: bool = False,
) -> Found:  # fmt: skip
    """The lines that match from a line's beginning on. Takes at most MOST_SECONDS and a few MiB of memory."""
    found, place, kept = Found(offset=offset, line=line), _Place(line, offset), b""
    until, base = time.monotonic() + MOST_SECONDS, offset
    while base + len(kept) < size:
        at = base + len(kept)
        piece = read(at, min(STRETCH_BYTES, size - at))
        if not piece:
            break
        stretch, is_last = kept + piece, at + len(piece) >= size
        consumed = _look_through(stretch, base, finder, 0 if is_last else overlap, place, found, most)
        kept, base = stretch[consumed:], base + consumed
        found.offset, found.line = place.begins_at, place.line
        if (stops_at_most and len(found.hits) >= most) or time.monotonic() > until:
            break
    found.is_complete = base + len(kept) >= size
    return found


def line_at(read: Read, size: int, line: int) -> Hit | None:
    """A line by its number; None where the log has fewer. Takes at most MOST_SECONDS."""
    before, at, until = line - 1, 0, time.monotonic() + MOST_SECONDS
    while before and at < size and time.monotonic() < until:
        piece = read(at, min(STRETCH_BYTES, size - at))
        breaks = piece.count(b"\n")
        if not piece:
            return None
        if breaks >= before:
            at += [match.end() for match, _ in zip(re.finditer(b"\n", piece), range(before), strict=False)][
                -1
            ]
            before = 0
        else:
            before, at = before - breaks, at + len(piece)
    return None if before or at >= size else Hit(line, at, shown(read(at, SHOWN_BYTES), 0, 0))


def number_of(read: Read, size: int, offset: int) -> int | None:
    """The number of the line that begins at an offset; None where counting took MOST_SECONDS."""
    line, at, until = 1, 0, time.monotonic() + MOST_SECONDS
    while at < min(offset, size) and time.monotonic() < until:
        piece = read(at, min(STRETCH_BYTES, offset - at))
        if not piece:
            return None
        line, at = line + piece.count(b"\n"), at + len(piece)
    return line if at == offset else None


def _look_through(
    stretch: bytes, base: int, finder: Finder, overlap: int, place: _Place, found: Found, most: int
) -> int:
    """Add the lines of one stretch that match; returns how many of its bytes are done with."""
    lowered, looked, seen = stretch.lower(), 0, 0
    while (at := finder(lowered, looked)) >= 0:
        _step(stretch, base, seen, at, place)
        if place.line != place.last_hit:
            place.last_hit = place.line
            found.lines += 1
            if len(found.hits) < most:
                begin = max(0, place.begins_at - base)
                found.hits.append(Hit(place.line, place.begins_at, shown(stretch, begin, at)))
        seen = at
        looked = stretch.find(b"\n", at)
        if looked < 0:
            break
    done = max(seen, len(stretch) - overlap)
    _step(stretch, base, seen, done, place)
    return done


def _step(stretch: bytes, base: int, start: int, end: int, place: _Place) -> None:
    """Count the lines between two places of a stretch."""
    breaks = stretch.count(b"\n", start, end)
    if breaks:
        place.line += breaks
        place.begins_at = base + stretch.rfind(b"\n", start, end) + 1


def shown(stretch: bytes, begin: int, at: int) -> str:
    """The line that begins somewhere in a stretch, or of a long one what is around the match at `at`."""
    first = begin if at - begin < SHOWN_BYTES // 2 else at - SHOWN_BYTES // 4
    line, _, _ = stretch[first : first + SHOWN_BYTES].partition(b"\n")
    return line.decode(errors="replace").rstrip("\r")
