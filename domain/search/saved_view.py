"""A view of the list of runs that people save by name."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from domain.messages import State
from domain.search.parser import LONGEST
from domain.spec import Label

MOST_VIEWS = 200
"""Of an installation."""
Short = Annotated[str, Field(max_length=LONGEST)]


class ViewDefinition(BaseModel):
    """Which runs a view lists, in which order, with which columns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filter: Short = ""
    """In the language of the search; one that cannot be read is shown with its error."""
    states: Annotated[list[State], Field(max_length=20)] = []
    project: Annotated[str, Field(max_length=200)] | None = None
    columns: Annotated[list[Short], Field(max_length=60)] | None = None
    """Those of the Runs page by their names there, others as `domain.search.fields.parse_column` reads them; None
    for those that the page has by itself."""
    sort: Short = ""


class NamedView(ViewDefinition):
    """A view with its name."""

    name: Annotated[Label, Field(min_length=1)]
