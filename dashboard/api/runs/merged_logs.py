"""Lines of all ranks and both streams in one view, by their time of arrival, and searches in them."""

from __future__ import annotations

import operator
import re
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService, Threads
from dashboard.api.reading import MOST, JsonRoute
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.logs.merge import LogSource, MergePosition, lines_before, lines_from, offsets_at
from dashboard.logs.search import ERROR_OVERLAP, find_error, find_text
from dashboard.logs.sources import MergedSearchResult, merged_sources, page, search_all
from dashboard.logs.stored_logs import ALL, SomeStream, check_rank
from dashboard.service.service import Service

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["logs"])
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
    find_lines = partial(_search, service, run_id, attempt, rank, stream)
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


def _search(
    service: Service, run_id: str, attempt: int | None, rank: str, stream: SomeStream,
    q: str, errors: bool, log: int, offset: int, line: int, limit: int,
) -> MergedSearchResult:  # fmt: skip
    _, sources = _sources(service, run_id, attempt, rank, stream)
    finder, overlap = (find_error, ERROR_OVERLAP) if errors else find_text(q)
    return search_all(sources, finder, overlap, log, offset, line, limit, only_first=errors)
