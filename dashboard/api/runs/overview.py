"""The table of runs; every open Runs page asks for it every few seconds."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import MOST, JsonRoute
from dashboard.api.runs.compare import MOST_RUNS
from dashboard.api.runs.searches import Columns, Search, SortText, check_columns, parsed, parsed_sort
from dashboard.api.shared_reads import Tagged, answer_tagged, tagged
from dashboard.json_responses import answer
from dashboard.service.cost_cache import CostCache
from dashboard.service.overview import Filter, RowRange, overview, run_ids
from dashboard.service.service import Service
from db import acting
from db.people.visibility import Visibility, visibility
from db.search.run_search import words
from domain.messages import State
from domain.search.completion import complete, complete_column
from domain.search.parser import LONGEST

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
CACHED_S = 1.0
MOST_ROWS = 200


class Overviews:
    """The last table of each filter, shared by all who see the same: each is read once a second at most."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cache = CostCache[tuple[Filter, RowRange, Visibility, str | None], Tagged](CACHED_S)

    def latest(self, run_filter: Filter, window: RowRange) -> Tagged:
        """The window of the table as gzipped JSON, and its tag. Raises QueryError."""
        key = run_filter, window, visibility(), acting.rights().by  # for searches of `by:me`
        return self._cache.get(key, lambda: self._read(run_filter, window))

    def _read(self, run_filter: Filter, window: RowRange) -> Tagged:
        return tagged(overview(self._service.store, self._service.now_for_contact(), run_filter, window))


def chosen_filter(
    state: Annotated[list[State] | None, Query(description="Only runs in these states.")] = None,
    q: Annotated[str, Query(max_length=500, description="Text to look for.")] = "",
    project: Annotated[str, Query(max_length=200)] = "",
    search: Search = "",
    attention: Annotated[bool, Query(description="Only runs that need attention.")] = False,
) -> Filter:
    """The selected runs. Raises Rejection."""
    parsed(search, 0.0)
    return Filter(q, tuple(sorted(set(state or ()))), project, search.strip(), attention)


Chosen = Annotated[Filter, Depends(chosen_filter)]


@router.get("/overview/ids")
def ids_of_runs(
    service: TheService,
    run_filter: Chosen,
    sort: SortText = "",
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = MOST_RUNS,
) -> Response:
    """The ids of the first runs of the whole table, newest first or sorted, for actions on all of them."""
    parsed_sort(sort)
    now = service.now_for_contact()
    return answer(run_ids(service.store, now, run_filter, sort.strip(), limit))


@router.get("/overview")
def overview_of_runs(
    request: Request,
    run_filter: Chosen,
    sort: SortText = "",
    queue: Annotated[Literal["folded", "whole"], Query(description="Whether a long queue is folded.")] = "folded",
    offset: Annotated[int, Query(ge=0, le=MOST)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = MOST_ROWS,
    column: Columns = (),
) -> Response:
    """A window of the table of the Runs page: pinned and live runs first, then recently failed, queued and others.

    The header `Rankzero-Bulk-Action` is the id of the current action on many runs (`/api/bulk-actions/ID`), or
    `none`."""
    overviews: Overviews = request.app.state.overviews
    parsed_sort(sort)
    check_columns(column)
    window = RowRange(sort.strip(), offset, limit, queue == "whole", tuple(column))
    response = answer_tagged(request, overviews.latest(run_filter, window))
    # Said also when there is none: a browser keeps a header that a 304 leaves out.
    response.headers["Rankzero-Bulk-Action"] = request.app.state.bulk_actions.running() or "none"
    return response


# Completions of a search of runs, while it is typed.


@router.get("/search/completions")
def completions(
    service: TheService,
    search: Annotated[str, Query(alias="filter", max_length=LONGEST, description="The search so far.")] = "",
    cursor: Annotated[int | None, Query(ge=0, le=LONGEST, description="Cursor position; by default the end.")] = None,
) -> Response:
    """Texts that can take the place of the characters `start` to `end` (exclusive) of the search."""
    completion = complete(search, len(search) if cursor is None else cursor, partial(words, service.store))
    return answer(completion._asdict() | {"proposals": [proposal._asdict() for proposal in completion.proposals]})


@router.get("/search/columns")
def columns(
    service: TheService,
    text: Annotated[str, Query(max_length=LONGEST, description="Part of a name.")] = "",
) -> Response:
    """Fields and numbers of series that can be a column of the list of runs, or sort it."""
    return answer(complete_column(text, partial(words, service.store)))
