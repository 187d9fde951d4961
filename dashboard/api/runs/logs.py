"""A rank's log, byte for byte, and searches in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.api.context import TheService, Threads
from dashboard.api.reading import MOST, JsonRoute
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.logs import pattern_preview
from dashboard.logs.search import (
    ERROR_OVERLAP,
    SHOWN_BYTES,
    Hit,
    SearchResult,
    find_error,
    find_text,
    line_at,
    line_number_at,
    search,
    shown,
)
from dashboard.logs.stored_logs import LogFile, Stream, check_rank, find_log
from dashboard.service.service import Service
from domain.printed_pattern import MOST_CHARACTERS

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["logs"])
PIECE_BYTES = 256 * 1024
SEARCHES = 2
"""Concurrent searches: each reads a log from its beginning."""
FOLLOW_EVENTS = {"log", "run", "deleted"}


@router.get("/runs/{run_id}/logs")
def logs(
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
    find_lines = partial(_search, service, run_id, attempt, rank, stream)
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


def _search(
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
