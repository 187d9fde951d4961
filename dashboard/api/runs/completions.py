"""Completions of a search of runs, while it is typed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from db.search.search_words import words
from domain.search.completion import complete, complete_column
from domain.search.parser import LONGEST

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])


@router.get("/search/completions")
def completions(
    service: TheService,
    search: Annotated[str, Query(alias="filter", max_length=LONGEST, description="The search so far.")] = "",
    cursor: Annotated[
        int | None, Query(ge=0, le=LONGEST, description="Where the cursor stands; by default at the end.")
    ] = None,
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
