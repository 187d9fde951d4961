"""The logs of a run that are shown as one, and searches in all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from dashboard.logs import search
from dashboard.logs.merge import Line, LogSource, MergePosition, offsets_at, position_of
from dashboard.logs.search import Finder
from dashboard.logs.stored_logs import ALL, LAUNCHER, LogFile, SomeStream, find_logs
from dashboard.service.service import Service

_LAST = 10**7
"""Orders the launcher behind every rank."""


@dataclass(frozen=True)
class MergedHit:
    """A line of one of the logs that contains the text."""

    rank: int | str
    stream: str
    line: int
    """Line number in its own log, from 1."""
    offset: int
    at: float | None
    position: str
    text: str


@dataclass
class MergedSearchResult:
    """Matching lines, log after log, and where the next search continues."""

    hits: list[MergedHit] = field(default_factory=list)
    lines: int = 0
    log: int = 0
    offset: int = 0
    line: int = 1
    is_complete: bool = False


def is_merged(rank: str, stream: SomeStream) -> bool:
    """Whether this selects more than one log."""
    return rank == ALL or stream == "both"


def merged_sources(service: Service, run_id: str, attempt: int, rank: str, stream: SomeStream) -> list[LogSource]:
    """The selected logs in order: of one rank or of all and the launcher, of one stream or both."""
    # Read whether it ended before the sizes, so that no byte is missed in between.
    has_ended = service.has_ended(run_id, attempt)
    files = {
        log: file
        for log, file in find_logs(service.store, run_id, attempt).items()
        if rank in (ALL, str(log[0])) and stream in ("both", log[1])
    }
    sources = [_source(service, log, file, has_ended) for log, file in files.items()]
    return sorted(sources, key=lambda source: source.order)


def _source(service: Service, log: tuple[int | str, str], file: LogFile, has_ended: bool) -> LogSource:
    rank, stream = log
    order = 2 * (_LAST if rank == LAUNCHER else int(rank)) + (stream == "err")
    read = partial(service.files.read, file.file_id)
    times = service.files.arrival_times(file.file_id, file.size_bytes)
    return LogSource(rank, stream, order, file.file_id, read, file.size_bytes, times, has_ended)


def are_untimed(sources: Sequence[LogSource]) -> bool:
    """Whether some of these logs' bytes were stored before times of arrival were recorded."""
    return any(source.size_bytes and not source.times.at_ms(0) for source in sources)


def position_text(position: MergePosition) -> str:
    """The position as text."""
    return f"{position.at_ms}.{position.order}.{position.offset}"


def page(sources: Sequence[LogSource], lines: Sequence[Line]) -> dict[str, Any]:
    """The lines as JSON values, and the position before the first one if there are earlier lines."""
    has_more = bool(lines) and any(offsets_at(sources, lines[0].position))
    return {
        "lines": [asdict(line) | {"position": position_text(line.position)} for line in lines],
        "before": position_text(lines[0].position) if has_more else None,
        "is_untimed": are_untimed(sources),
    }


def search_all(
    sources: Sequence[LogSource], finder: Finder, overlap: int, log: int, offset: int, line: int, limit: int,
    only_first: bool = False,
) -> MergedSearchResult:  # fmt: skip
    """The matching lines of one log after the other; with `only_first`, the first one of each.

    Takes a few seconds at most; `log`, `offset` and `line` of the result say where the next search continues."""
    deadline, result = time.monotonic() + search.MOST_SECONDS, MergedSearchResult()
    for source in [source for source in sources if source.order >= log]:
        start = (offset, line) if source.order == log else (0, 1)
        max_hits = 1 if only_first else limit
        log_result = search.search(
            source.read, source.size_bytes, finder, overlap, *start, max_hits, stops_at_most=only_first
        )
        result.hits += [_hit(source, hit) for hit in log_result.hits]
        result.lines += log_result.lines
        result.log, result.offset, result.line = source.order, log_result.offset, log_result.line
        if not log_result.is_complete and not (only_first and log_result.hits):
            return result
        result.log, result.offset, result.line = source.order + 1, 0, 1
        if time.monotonic() > deadline or len(result.hits) >= limit:
            return result
    result.is_complete = True
    return result


def _hit(source: LogSource, hit: search.Hit) -> MergedHit:
    position = position_of(source, hit.offset)
    at = position.at_ms / 1000 if position.at_ms else None
    return MergedHit(source.rank, source.stream, hit.line, hit.offset, at, position_text(position), hit.text)
