"""The search and the order of a list of runs, as parameters of its address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query
from pydantic import StringConstraints

from dashboard.errors import Rejection
from domain.search.fields import Sort, parse_column, parse_sort
from domain.search.parser import LONGEST, parse
from domain.search.query import Query as RunQuery
from domain.search.query import QueryError


def parsed(search: str, now: float) -> RunQuery:
    """Parse a search; raise Rejection with the position of the word that is wrong."""
    try:
        return parse(search, now)
    except QueryError as error:
        raise _rejection(error, "filter") from None


Search = Annotated[
    str,
    Query(alias="filter", max_length=LONGEST, description='Such as `state:failed lr>0.001 "out of memory"`.'),
]
SortText = Annotated[
    str,
    Query(alias="sort", max_length=LONGEST, description="A field or series; `-lr` sorts the other way round."),
]
MOST_COLUMNS = 40
Columns = Annotated[
    Sequence[Annotated[str, StringConstraints(max_length=LONGEST)]],
    Query(
        max_length=MOST_COLUMNS,
        description="Further values of each run: a field, or such as `best:val/loss`.",
    ),
]


def parsed_sort(text: str) -> Sort | None:
    """Parse the order of a list. Raises Rejection."""
    try:
        return parse_sort(text)
    except QueryError as error:
        raise _rejection(error, "sort") from None


def check_columns(columns: Sequence[str]) -> None:
    """Check that all columns can be read. Raises Rejection."""
    for text in columns:
        try:
            parse_column(text)
        except QueryError as error:
            raise _rejection(error, "column") from None


def _rejection(error: QueryError, field: str) -> Rejection:
    sentence = str(error) if str(error).endswith("?") else f"{error}."
    return Rejection(422, sentence, field, start=error.start, end=error.end)
