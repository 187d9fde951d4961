"""Marks on the fields of requests that name something: what it is, and what is done with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

from pydantic import BaseModel

from domain.people.roles import Action
from domain.requests.marks import marks_of


class Named(Enum):
    """The kind of object that the value of a field names."""

    PROJECT = "a project"
    RUN = "a run"
    CHECKPOINT = "a run, or a checkpoint of it"
    SNAPSHOT = "stored code, by its SHA-256"
    SECRET = "a secret"
    CODE = "a path on the dashboard's machine, read as far as the person may read it there"
    NODE_PATH = "a path that nodes open with the run's account, and the dashboard never"


@dataclass(frozen=True)
class Reference:
    """The mark of a field: `run: Annotated[str, Reference(Named.RUN)]`."""

    named: Named
    action: Action = Action.SEE
    """The action of the request on it."""


@cache
def references_in(model: type[BaseModel]) -> dict[str, Reference]:
    """Return the marks of a request's own fields, by the fields' names."""
    marks = {name: marks_of(field) for name, field in model.model_fields.items()}
    return {name: mark for name, all_marks in marks.items() for mark in all_marks if isinstance(mark, Reference)}
