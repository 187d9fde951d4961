"""Searches in a stored log, ignoring the case of ASCII letters, a stretch at a time, however long the file is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from dashboard.logs.stored_logs import LogFile, newest_logs
from dashboard.storage.files import Files
from db.engine import Store
from db.runs.run_list import RunLogs, RunSelection, run_logs
from domain.clock import SYSTEM_CLOCK
from domain.views import FileView


def search(
    read: Read, size: int, finder: Finder, overlap: int, offset: int = 0, line: int = 1, most: int = 1000,
    stops_at_most: bool = False, last_hit: int = 0, deadline: float | None = None,
) -> SearchResult:  # fmt: skip
    """The matching lines from the start of a line on, without the line `last_hit`.

    Takes at most MOST_SECONDS, or until the deadline, in seconds of the clock, and a few MiB of memory."""
    result = SearchResult(offset=offset, line=line, last_hit=last_hit)
    cursor, carried, base = _LineCursor(line, offset, last_hit), b"", offset
    deadline = SYSTEM_CLOCK.now() + MOST_SECONDS if deadline is None else deadline
    while base + len(carried) < size:
        at = base + len(carried)
        piece = read(at, min(STRETCH_BYTES, size - at))
        if not piece:
            break
        stretch, is_last = carried + piece, at + len(piece) >= size
        consumed = _search_stretch(stretch, base, finder, 0 if is_last else overlap, cursor, result, most)
        carried, base = stretch[consumed:], base + consumed
        result.offset, result.line, result.last_hit = cursor.begins_at, cursor.line, cursor.last_hit
        if (stops_at_most and len(result.hits) >= most) or SYSTEM_CLOCK.now() > deadline:
            break
    result.is_complete = base + len(carried) >= size
    return result


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


def line_at(read: Read, size: int, line: int) -> Hit | None:
    """The line with this number; None when the log has fewer. Takes at most MOST_SECONDS."""
    remaining, at, deadline = line - 1, 0, SYSTEM_CLOCK.now() + MOST_SECONDS
    while remaining and at < size and SYSTEM_CLOCK.now() < deadline:
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
    line, at, deadline = 1, 0, SYSTEM_CLOCK.now() + MOST_SECONDS
    while at < min(offset, size) and SYSTEM_CLOCK.now() < deadline:
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


# Searches in the logs of many runs: which of them printed this?

RUNS_AT_ONCE = 50
MOST_MATCHING_RUNS = 200
"""In one answer."""


@dataclass(frozen=True)
class LogLine:
    """The first matching line of a run."""

    attempt: int
    rank: int | str
    stream: str
    line: int
    """Line number in its own log, from 1."""
    offset: int
    text: str


@dataclass
class RunMatches:
    """The matching lines of one run's logs, of all its attempts, ranks and streams."""

    id: str
    name: str
    lines: int
    """Their number; with an answer that continues in the middle of a run, those of this answer."""
    first: LogLine


@dataclass(frozen=True)
class SearchPlace:
    """Where the next search continues: after a run, or within a log of the run after it."""

    created_at: float
    run_id: str
    file_id: int = 0
    """0 for the beginning of the next run."""
    offset: int = 0
    line: int = 1
    last_hit: int = 0


@dataclass
class RunsSearch:
    """The matching runs among the searched ones, newest first."""

    runs: list[RunMatches] = field(default_factory=list)
    searched: int = 0
    """The number of runs whose logs were searched to their end."""
    after: SearchPlace | None = None
    """None once every run was searched."""


@dataclass(frozen=True)
class _Log:
    attempt: int
    rank: int | str
    stream: str
    file: LogFile


class RunsSearcher:
    """Searches logs run by run, newest first, until the time is up."""

    def __init__(self, store: Store, files: Files, text: str, seconds: float = MOST_SECONDS) -> None:
        self._store, self._files = store, files
        self._finder: Finder
        self._finder, self._overlap = find_text(text)
        self._deadline = SYSTEM_CLOCK.now() + seconds
        self._result = RunsSearch()

    def search(self, selection: RunSelection, now: float, after: SearchPlace | None) -> RunsSearch:
        """Return the matches from this place on; takes a little longer than its seconds, and a few MiB of memory."""
        result, is_last = self._result, False
        result.after = after
        while not is_last:
            than = (result.after.created_at, result.after.run_id) if result.after else None
            runs = run_logs(self._store, selection, now, than, RUNS_AT_ONCE)
            is_last = len(runs) < RUNS_AT_ONCE
            for run in runs:
                if not self._search_run(run) or self._is_over():
                    return result
        result.after = None
        return result

    def _search_run(self, run: RunLogs) -> bool:
        """Add the run's matches; returns False where the time is up before the end of its logs."""
        previous = self._result.after
        begun = previous.file_id if previous else 0
        logs = _ordered(run)
        files = [log.file.file_id for log in logs]
        first = files.index(begun) if begun in files else 0
        for log in logs[first:]:
            start = previous if previous and log.file.file_id == begun else SearchPlace(0, "")
            log_result = self._search_log(log, start)
            self._add(run, log, log_result)
            if not log_result.is_complete and SYSTEM_CLOCK.now() > self._deadline:
                self._result.after = _within(previous, log, log_result)
                return False
        self._result.searched += 1
        self._result.after = SearchPlace(run.created_at, run.id)
        return True

    def _search_log(self, log: _Log, start: SearchPlace) -> SearchResult:
        read = partial(self._files.read, log.file.file_id)
        return search(
            read, log.file.size_bytes, self._finder, self._overlap, start.offset, start.line, 1,
            last_hit=start.last_hit, deadline=self._deadline,
        )  # fmt: skip

    def _add(self, run: RunLogs, log: _Log, log_result: SearchResult) -> None:
        if not log_result.lines:
            return
        runs = self._result.runs
        if not runs or runs[-1].id != run.id:
            hit = log_result.hits[0]
            first = LogLine(log.attempt, log.rank, log.stream, hit.line, hit.offset, hit.text)
            runs.append(RunMatches(run.id, run.name, 0, first))
        runs[-1].lines += log_result.lines

    def _is_over(self) -> bool:
        return SYSTEM_CLOCK.now() > self._deadline or len(self._result.runs) >= MOST_MATCHING_RUNS


def _within(previous: SearchPlace | None, log: _Log, log_result: SearchResult) -> SearchPlace:
    """The place in a log of the run after the previous one; before the first run, time has no end."""
    before = previous or SearchPlace(float("inf"), "")
    return replace(
        before, file_id=log.file.file_id, offset=log_result.offset, line=log_result.line, last_hit=log_result.last_hit
    )


def _ordered(run: RunLogs) -> list[_Log]:
    """The run's logs by attempt and rank, the launcher's last; standard output before errors."""
    return [log for attempt, files in groupby(run.files, lambda file: file.attempt) for log in _logs(attempt, files)]


def _logs(attempt: int, files: Iterable[FileView]) -> list[_Log]:
    logs = [_Log(attempt, rank, stream, file) for (rank, stream), file in newest_logs(files).items()]
    return sorted(logs, key=lambda log: (isinstance(log.rank, str), log.rank, log.stream == "err"))
