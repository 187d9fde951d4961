"""The logs of a run that are shown as one, and searches in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool

from dashboard.logs import search
from dashboard.logs.merge import Line, LogSource, MergePosition, lines_before, lines_from, offsets_at, position_of
from dashboard.logs.search import Finder
from dashboard.logs.stored_logs import ALL, LAUNCHER, LogFile, SomeStream, find_logs
from dashboard.service.service import Service
from domain.clock import SYSTEM_CLOCK


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
    deadline, result = SYSTEM_CLOCK.now() + search.MOST_SECONDS, MergedSearchResult()
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
        if SYSTEM_CLOCK.now() > deadline or len(result.hits) >= limit:
            return result
    result.is_complete = True
    return result


def _hit(source: LogSource, hit: search.Hit) -> MergedHit:
    position = position_of(source, hit.offset)
    at = position.at_ms / 1000 if position.at_ms else None
    return MergedHit(source.rank, source.stream, hit.line, hit.offset, at, position_text(position), hit.text)


# Several logs of a run as one, from their last lines on, by the lines' time of arrival.

TAIL_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024
MOST_BEHIND_BYTES = 4 * 1024 * 1024
"""A page that falls further behind the logs restarts from their last lines."""


class FollowedLogs:
    """The merged lines that were written since the last call."""

    def __init__(self, service: Service, run_id: str, rank: str, stream: SomeStream, attempt: int | None) -> None:
        self._service, self._run_id = service, run_id
        self._rank, self._stream, self._requested_attempt = rank, stream, attempt
        self._attempt: int | None = None
        self._files: dict[int, int] = {}
        self._offsets: dict[int, int] = {}

    async def new_messages(self) -> list[dict[str, Any]]:
        """Messages with the lines written since the last call."""
        return await run_in_threadpool(self._read)

    def _read(self) -> list[dict[str, Any]]:
        service, run_id = self._service, self._run_id
        attempt = self._requested_attempt or service.latest_attempt(run_id)
        sources = merged_sources(service, run_id, attempt, self._rank, self._stream)
        offsets = [self._offsets.get(source.order, 0) for source in sources]
        behind = sum(s.whole_bytes - offset for s, offset in zip(sources, offsets, strict=True))
        if attempt != self._attempt or self._has_other_files(sources) or behind > MOST_BEHIND_BYTES:
            self._attempt = attempt
            return [self._tail(sources)]
        messages = []
        while lines := lines_from(sources, offsets, PIECE_BYTES):
            messages.append(self._message(sources, lines))
        self._remember(sources, offsets)
        return messages

    def _has_other_files(self, sources: Sequence[LogSource]) -> bool:
        return any(self._files.get(source.order, source.file_id) != source.file_id for source in sources)

    def _tail(self, sources: Sequence[LogSource]) -> dict[str, Any]:
        ends = [source.whole_bytes for source in sources]
        self._remember(sources, ends)
        return self._message(sources, lines_before(sources, list(ends), TAIL_BYTES), reset=True)

    def _remember(self, sources: Sequence[LogSource], offsets: Sequence[int]) -> None:
        self._files = {source.order: source.file_id for source in sources}
        self._offsets = {source.order: at for source, at in zip(sources, offsets, strict=True)}

    def _message(self, sources: Sequence[LogSource], lines: Sequence[Line], reset: bool = False) -> dict[str, Any]:
        choice = {"rank": self._rank, "stream": self._stream, "attempt": self._attempt}
        return {"type": "log", **choice, "reset": reset, **page(sources, lines)}
