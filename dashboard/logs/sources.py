"""The logs of a run that are shown as one, and looking for a text in all of them."""

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
"""Behind every rank."""


@dataclass(frozen=True)
class MergedHit:
    """A line of one of the logs in which the text stands."""

    rank: int | str
    stream: str
    line: int
    """In its own log, from 1."""
    offset: int
    at: float | None
    position: str
    text: str


@dataclass
class MergedFound:
    """Lines that match, log after log, and where to go on."""

    hits: list[MergedHit] = field(default_factory=list)
    lines: int = 0
    log: int = 0
    offset: int = 0
    line: int = 1
    is_complete: bool = False


def is_merged(rank: str, stream: SomeStream) -> bool:
    """Whether that names more than one log."""
    return rank == ALL or stream == "both"


def merged_sources(
    service: Service, run_id: str, attempt: int, rank: str, stream: SomeStream
) -> list[LogSource]:
    """The logs of a rank, or of all of them and the launcher, of a stream or both, in order."""
    # First the end, then the sizes: no byte comes between.
    has_ended = service.has_ended(run_id, attempt)
    wanted = {
        log: file
        for log, file in find_logs(service.store, run_id, attempt).items()
        if rank in (ALL, str(log[0])) and stream in ("both", log[1])
    }
    found = [_source(service, log, file, has_ended) for log, file in wanted.items()]
    return sorted(found, key=lambda source: source.order)


def _source(service: Service, log: tuple[int | str, str], file: LogFile, has_ended: bool) -> LogSource:
    rank, stream = log
    order = 2 * (_LAST if rank == LAUNCHER else int(rank)) + (stream == "err")
    read = partial(service.files.read, file.file_id)
    times = service.files.arrival_times(file.file_id, file.size_bytes)
    return LogSource(rank, stream, order, file.file_id, read, file.size_bytes, times, has_ended)


def are_untimed(sources: Sequence[LogSource]) -> bool:
    """Whether something of these logs was stored before arrival times were noted."""
    return any(source.size_bytes and not source.times.at_ms(0) for source in sources)


def written(position: MergePosition) -> str:
    """A position as text."""
    return f"{position.at_ms}.{position.order}.{position.offset}"


def page(sources: Sequence[LogSource], lines: Sequence[Line]) -> dict[str, Any]:
    """Lines as JSON values, and the position before the first of them, where something stands before it."""
    has_more = bool(lines) and any(offsets_at(sources, lines[0].position))
    return {
        "lines": [asdict(line) | {"position": written(line.position)} for line in lines],
        "before": written(lines[0].position) if has_more else None,
        "is_untimed": are_untimed(sources),
    }


def search_all(
    sources: Sequence[LogSource], finder: Finder, overlap: int, log: int, offset: int, line: int, limit: int,
    only_first: bool = False,
) -> MergedFound:  # fmt: skip
    """The lines that match in one log after the other; `only_first`: the first of each.

    Looks for a few seconds at most; `log`, `offset` and `line` of what it returns say where to go on."""
    until, found = time.monotonic() + search.MOST_SECONDS, MergedFound()
    for source in (each for each in sources if each.order >= log):
        start = (offset, line) if source.order == log else (0, 1)
        most = 1 if only_first else limit
        one = search.search(
            source.read, source.size_bytes, finder, overlap, *start, most, stops_at_most=only_first
        )
        found.hits += [_hit(source, hit) for hit in one.hits]
        found.lines += one.lines
        found.log, found.offset, found.line = source.order, one.offset, one.line
        if not one.is_complete and not (only_first and one.hits):
            return found
        found.log, found.offset, found.line = source.order + 1, 0, 1
        if time.monotonic() > until or len(found.hits) >= limit:
            return found
    found.is_complete = True
    return found


def _hit(source: LogSource, hit: search.Hit) -> MergedHit:
    position = position_of(source, hit.offset)
    at = position.at_ms / 1000 if position.at_ms else None
    return MergedHit(source.rank, source.stream, hit.line, hit.offset, at, written(position), hit.text)
