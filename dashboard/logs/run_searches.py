"""Searches in the logs of many runs: which of them printed this?"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from dashboard.logs.search import MOST_SECONDS, Finder, SearchResult, find_text, search
from dashboard.logs.stored_logs import LogFile, newest_logs
from dashboard.storage.files import Files
from db.engine import Store
from db.runs.run_list import RunSelection
from db.runs.run_logs import RunLogs, run_logs
from domain.views import FileView

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
        self._deadline = time.monotonic() + seconds
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
            found = self._search_log(log, start)
            self._add(run, log, found)
            if not found.is_complete and time.monotonic() > self._deadline:
                self._result.after = _within(previous, log, found)
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

    def _add(self, run: RunLogs, log: _Log, found: SearchResult) -> None:
        if not found.lines:
            return
        runs = self._result.runs
        if not runs or runs[-1].id != run.id:
            hit = found.hits[0]
            first = LogLine(log.attempt, log.rank, log.stream, hit.line, hit.offset, hit.text)
            runs.append(RunMatches(run.id, run.name, 0, first))
        runs[-1].lines += found.lines

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline or len(self._result.runs) >= MOST_MATCHING_RUNS


def _within(previous: SearchPlace | None, log: _Log, found: SearchResult) -> SearchPlace:
    """The place in a log of the run after the previous one; before the first run, time has no end."""
    before = previous or SearchPlace(float("inf"), "")
    return replace(before, file_id=log.file.file_id, offset=found.offset, line=found.line, last_hit=found.last_hit)


def _ordered(run: RunLogs) -> list[_Log]:
    """The run's logs by attempt and rank, the launcher's last; standard output before errors."""
    return [log for attempt, files in groupby(run.files, lambda file: file.attempt) for log in _logs(attempt, files)]


def _logs(attempt: int, files: Iterable[FileView]) -> list[_Log]:
    logs = [_Log(attempt, rank, stream, file) for (rank, stream), file in newest_logs(files).items()]
    return sorted(logs, key=lambda log: (isinstance(log.rank, str), log.rank, log.stream == "err"))
