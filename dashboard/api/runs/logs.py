"""Logs: a rank's as it is, several as one, previews of patterns, and searches in one run or in many."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, astuple
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.api.audit import write_down_download
from dashboard.api.context import TheService, Threads
from dashboard.api.reading import MOST, JsonRoute
from dashboard.api.runs.searches import Search, parsed
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.logs import pattern_preview
from dashboard.logs.merge import LogSource, MergePosition, lines_before, lines_from, offsets_at
from dashboard.logs.search import (
    ERROR_OVERLAP,
    SHOWN_BYTES,
    Hit,
    RunsSearcher,
    SearchPlace,
    SearchResult,
    find_error,
    find_text,
    line_at,
    line_number_at,
    search,
    shown,
)
from dashboard.logs.sources import MergedSearchResult, merged_sources, page, search_all
from dashboard.logs.stored_logs import ALL, LogFile, SomeStream, Stream, check_rank, find_log
from dashboard.service.service import Service
from db.people.ownership import ObjectKind
from db.runs.run_list import RunSelection, run_count
from domain.series.printed_pattern import MOST_CHARACTERS

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["logs"])
PIECE_BYTES = 256 * 1024
SEARCHES = 2
"""Concurrent searches: each reads a log from its beginning."""
FOLLOW_EVENTS = {"log", "run", "deleted"}


@router.get("/runs/{run_id}/logs")
def logs(
    request: Request,
    service: TheService,
    run_id: str,
    rank: Annotated[str, Query(max_length=20, description="A rank's number, or `launcher`.")] = "0",
    stream: Stream = "out",
    attempt: Annotated[int | None, Query(ge=1, description="By default the latest.")] = None,
    offset: Annotated[int | None, Query(description="First byte; a negative one counts from the end.")] = None,
    limit: Annotated[int | None, Query(ge=0)] = None,
    follow: Annotated[bool, Query(description="Continue until the run ends.")] = False,
) -> Response:
    """A log's bytes; X-Rankzero-Offset is the offset of the first one."""
    number, log = _log(service, run_id, attempt, rank, stream)
    size = log.size_bytes if log else 0
    start = _start(offset, size, follow)
    end = size if limit is None else min(size, start + limit)
    headers = {
        "X-Rankzero-Offset": str(start),
        "Content-Disposition": f'inline; filename="{run_id}-{number}-{rank}.{stream}.log"',
    }
    if start == 0 and limit is None:
        write_down_download(request, service, f"log {rank} ({stream}) of run {run_id}", ObjectKind.RUN, run_id)
    if follow:
        body = _follow(service, run_id, number, rank, stream, start)
        return StreamingResponse(body, media_type="text/plain; charset=utf-8", headers=headers)
    headers["Content-Length"] = str(end - start)
    pieces = _pieces(service, log, start, end)
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/runs/{run_id}/logs/search")
async def search_log(
    service: TheService,
    request: Request,
    run_id: str,
    q: Annotated[str, Query(max_length=500, description="Text to search for, ignoring case.")] = "",
    errors: Annotated[bool, Query(description="Find the first error instead.")] = False,
    line: Annotated[
        int,
        Query(ge=1, le=MOST, description="Without `q`: only this line; else the line number at `offset`."),
    ] = 1,
    rank: Annotated[str, Query(max_length=20, description="A rank's number, or `launcher`.")] = "0",
    stream: Stream = "out",
    attempt: Annotated[int | None, Query(ge=1, le=MOST, description="By default the latest.")] = None,
    offset: Annotated[int, Query(ge=0, le=MOST, description="Where an earlier answer ended.")] = 0,
    begins_at: Annotated[
        int | None, Query(ge=0, le=MOST, description="Without `q`: the line that begins at this offset.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of lines.")] = 1000,
) -> Response:
    """The lines of a stored log that contain a text, with their numbers and offsets.

    A search takes two seconds at most: unless `is_complete`, repeat it with `offset` and `line` of the answer."""
    state = request.app.state
    if not hasattr(state, "searching"):  # of this event loop
        state.searching = Threads(SEARCHES)
    if begins_at is not None:
        return answer(await state.searching.run(_line, service, run_id, attempt, rank, stream, begins_at))
    find_lines = partial(_search_log, service, run_id, attempt, rank, stream)
    return answer(await state.searching.run(find_lines, q, errors, line, offset, limit))


@router.get("/runs/{run_id}/logs/pattern")
def pattern(
    service: TheService,
    run_id: str,
    pattern: Annotated[
        str,
        Query(max_length=MOST_CHARACTERS, description="A line with names in braces: `it {step} | loss {loss}`."),
    ],
) -> Response:
    """Preview a pattern of printed lines at the end of the latest attempt's logs: the newest lines that fit, with
    their step, epoch and values, and how many fit. `PATCH /api/runs/RUN` with `printed_pattern` uses it.

    Raises Rejection (422) where it is no pattern."""
    try:
        return answer(pattern_preview.preview(service, run_id, pattern))
    except ValueError as error:
        raise Rejection(422, f"pattern {error}.", "pattern") from None


def _log(service: Service, run_id: str, attempt: int | None, rank: str, stream: Stream) -> tuple[int, LogFile | None]:
    """The attempt's number (by default the latest) and the log. Raises NoSuchRun, Rejection."""
    run = service.run(run_id)
    check_rank(run, rank)
    number = attempt or run.attempt
    return number, find_log(service.store, run_id, number, rank, stream)


def _line(service: Service, run_id: str, attempt: int | None, rank: str, stream: Stream, offset: int) -> SearchResult:
    _, log = _log(service, run_id, attempt, rank, stream)
    if log is None:
        return SearchResult(is_complete=True)
    read = partial(service.files.read, log.file_id)
    line = line_number_at(read, log.size_bytes, offset)
    hits = [] if line is None else [Hit(line, offset, shown(read(offset, SHOWN_BYTES), 0, 0))]
    return SearchResult(hits, len(hits), is_complete=True)


def _search_log(
    service: Service, run_id: str, attempt: int | None, rank: str, stream: Stream,
    q: str, errors: bool, line: int, offset: int, limit: int,
) -> SearchResult:  # fmt: skip
    _, log = _log(service, run_id, attempt, rank, stream)
    if log is None:
        return SearchResult(is_complete=True)
    read = partial(service.files.read, log.file_id)
    if errors:
        return search(read, log.size_bytes, find_error, ERROR_OVERLAP, offset, line, 1, stops_at_most=True)
    if not q:
        hit = line_at(read, log.size_bytes, line)
        return SearchResult([hit] if hit else [], int(hit is not None), is_complete=True)
    return search(read, log.size_bytes, *find_text(q), offset, line, limit)


def _start(offset: int | None, size: int, follow: bool) -> int:
    start = max(0, size + offset) if offset is not None and offset < 0 else offset or 0
    if start > size and not follow:
        raise Rejection(416, f"offset must be at most {size}, the log's size, got {start}.", "offset", offset=size)
    return start


def _pieces(service: Service, log: LogFile | None, start: int, end: int) -> Iterator[bytes]:
    while log is not None and start < end:
        piece = service.files.read(log.file_id, start, min(PIECE_BYTES, end - start))
        # The answer must be as long as announced even when the file has vanished.
        piece = piece or b"\n" * min(PIECE_BYTES, end - start)
        start += len(piece)
        yield piece


async def _follow(
    service: Service, run_id: str, attempt: int, rank: str, stream: Stream, start: int
) -> AsyncIterator[bytes]:
    with service.hub.viewer(run_id) as viewer:
        while not service.hub.closing:
            ended = await run_in_threadpool(service.has_ended, run_id, attempt)
            log = await run_in_threadpool(find_log, service.store, run_id, attempt, rank, stream)
            while log is not None and start < log.size_bytes:
                length = min(PIECE_BYTES, log.size_bytes - start)
                piece = await run_in_threadpool(service.files.read, log.file_id, start, length)
                if not piece:
                    return
                start += len(piece)
                yield piece
            if ended:
                return
            while not {m["type"] for m in await viewer.take()} & FOLLOW_EVENTS and not service.hub.closing:
                pass


# Lines of all ranks and both streams in one view, by their time of arrival, and searches in them.

READERS = 2
"""Concurrent requests: each may read many logs."""
_POSITION = re.compile(r"(\d{1,15})\.(\d{1,15})\.(\d{1,18})")
Rank = Annotated[str, Query(max_length=20, description="`all`, a rank's number, or `launcher`.")]
Attempt = Annotated[int | None, Query(ge=1, le=MOST, description="By default the latest.")]


@router.get("/runs/{run_id}/logs/merged")
async def merged_logs(
    service: TheService,
    request: Request,
    run_id: str,
    rank: Rank = ALL,
    stream: SomeStream = "both",
    attempt: Attempt = None,
    before: Annotated[str, Query(max_length=60, description="`before` of an answer; default: the end.")] = "",
    from_: Annotated[
        str,
        Query(alias="from", max_length=60, description="Return lines from the `position` of a match on instead."),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=262_144, description="Maximum bytes of lines.")] = 65_536,
) -> Response:
    """Whole lines of several logs, in the order of their arrival at this dashboard.

    Each line has its rank, stream and offset in its own log, and `at`, its time of arrival. After `from`, `has_later`
    says whether more lines follow: ask again from the last line, which comes again."""
    read_lines = partial(_lines, service, run_id, attempt, rank, stream)
    return answer(await _threads(request).run(read_lines, _position(before), _position(from_), limit))


@router.get("/runs/{run_id}/logs/merged/search")
async def search_merged_logs(
    service: TheService,
    request: Request,
    run_id: str,
    q: Annotated[str, Query(max_length=500, description="Text to search for, ignoring case.")] = "",
    errors: Annotated[bool, Query(description="The first error of each log instead.")] = False,
    rank: Rank = ALL,
    stream: SomeStream = "both",
    attempt: Attempt = None,
    log: Annotated[int, Query(ge=0, le=MOST, description="`log` of the answer to continue from.")] = 0,
    offset: Annotated[int, Query(ge=0, le=MOST, description="Its `offset`.")] = 0,
    line: Annotated[int, Query(ge=1, le=MOST, description="Its `line`.")] = 1,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Maximum number of lines of each log.")] = 1000,
) -> Response:
    """The lines that contain a text, one log after the other; `position` orders them by time.

    A search takes a few seconds at most: unless `is_complete`, repeat it with `log`, `offset` and `line` of the answer.
    Raises Rejection when there is nothing to look for."""
    if not q and not errors:
        raise Rejection(422, "q: enter a text to look for, or set errors=true.", "q")
    find_lines = partial(_search_merged, service, run_id, attempt, rank, stream)
    return answer(await _threads(request).run(find_lines, q, errors, log, offset, line, limit))


def _threads(request: Request) -> Threads:
    state = request.app.state
    if not hasattr(state, "merging"):  # of this event loop
        state.merging = Threads(READERS)
    threads: Threads = state.merging
    return threads


def _position(text: str) -> MergePosition | None:
    if not text:
        return None
    if (match := _POSITION.fullmatch(text)) is None:
        raise Rejection(422, f"A position is three numbers from an earlier answer, not {text!r}.", "before")
    return MergePosition(*map(int, match.groups()))


def _sources(
    service: Service, run_id: str, attempt: int | None, rank: str, stream: SomeStream
) -> tuple[int, list[LogSource]]:
    run = service.run(run_id)
    if rank != ALL:
        check_rank(run, rank)
    number = attempt or run.attempt
    return number, merged_sources(service, run_id, number, rank, stream)


def _lines(
    service: Service, run_id: str, attempt: int | None, rank: str, stream: SomeStream,
    before: MergePosition | None, start: MergePosition | None, limit: int,
) -> dict[str, Any]:  # fmt: skip
    number, sources = _sources(service, run_id, attempt, rank, stream)
    offsets = offsets_at(sources, start or before)
    lines = (lines_from if start else lines_before)(sources, offsets, limit)
    later = {"has_later": any(map(operator.lt, offsets, offsets_at(sources, None)))} if start else {}
    return {"attempt": number, **page(sources, lines), **later}


def _search_merged(
    service: Service, run_id: str, attempt: int | None, rank: str, stream: SomeStream,
    q: str, errors: bool, log: int, offset: int, line: int, limit: int,
) -> MergedSearchResult:  # fmt: skip
    _, sources = _sources(service, run_id, attempt, rank, stream)
    finder, overlap = (find_error, ERROR_OVERLAP) if errors else find_text(q)
    return search_all(sources, finder, overlap, log, offset, line, limit, only_first=errors)


# A search in the logs of all runs that match, an answer every two seconds.

_PLACE = TypeAdapter(tuple[float, str, int, int, int, int])


@router.get("/logs/search")
async def search_logs(
    service: TheService,
    request: Request,
    q: Annotated[str, Query(min_length=1, max_length=500, description="Text to search for, ignoring case.")],
    search: Search = "",
    after: Annotated[str, Query(max_length=300, description="`after` of the answer before.")] = "",
) -> Response:
    """The runs whose logs contain a text, newest first, with the number of matching lines and the first of them.

    All attempts, ranks and streams are searched. An answer takes about two seconds at most and says how many of the
    `total` runs it `searched`; repeat with its `after` until that is null. A run that one answer leaves in the middle
    comes again in the next, with the `lines` that follow."""
    state = request.app.state
    if not hasattr(state, "searching"):  # of this event loop
        state.searching = Threads(SEARCHES)
    return answer(await state.searching.run(_search_runs, service, q, search, after))


def _search_runs(service: Service, text: str, search: str, after: str) -> dict[str, object]:
    now = service.now_for_contact()
    selection = RunSelection(parsed(search, now))
    matches = RunsSearcher(service.store, service.files, text).search(selection, now, _place(after))
    return {
        "runs": [asdict(run) for run in matches.runs],
        "searched": matches.searched,
        "total": run_count(service.store, selection, now),
        "after": json.dumps(astuple(matches.after)) if matches.after else None,
    }


def _place(text: str) -> SearchPlace | None:
    """Parse `after`. Raises Rejection."""
    try:
        return SearchPlace(*_PLACE.validate_json(text)) if text else None
    except ValidationError:
        raise Rejection(422, "after must be the `after` of an answer before, or left out.", "after") from None
