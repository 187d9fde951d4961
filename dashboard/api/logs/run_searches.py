"""A search in the logs of all runs that match, an answer every two seconds."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService, Threads
from dashboard.api.reading import JsonRoute
from dashboard.api.runs.logs import SEARCHES
from dashboard.api.runs.searches import Search, parsed
from dashboard.errors import Rejection
from dashboard.json_responses import answer
from dashboard.logs.search import RunsSearcher, SearchPlace
from dashboard.service.service import Service
from db.runs.run_list import RunSelection
from db.runs.run_logs import run_count

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["logs"])
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
    return answer(await state.searching.run(_search, service, q, search, after))


def _search(service: Service, text: str, search: str, after: str) -> dict[str, object]:
    now = service.now_for_contact()
    selection = RunSelection(parsed(search, now))
    found = RunsSearcher(service.store, service.files, text).search(selection, now, _place(after))
    return {
        "runs": [asdict(run) for run in found.runs],
        "searched": found.searched,
        "total": run_count(service.store, selection, now),
        "after": json.dumps(astuple(found.after)) if found.after else None,
    }


def _place(text: str) -> SearchPlace | None:
    """Parse `after`. Raises Rejection."""
    try:
        return SearchPlace(*_PLACE.validate_json(text)) if text else None
    except ValidationError:
        raise Rejection(422, "after must be the `after` of an answer before, or left out.", "after") from None
