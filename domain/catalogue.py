"""The catalogue of a model's fields: how the form, the command line, the search and the pages show each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from domain.requests.marks import marks_of


class InputKind(Enum):
    """How a person gives a value."""

    TEXT = "one line of text"
    NUMBER = "a number"
    FLAG = "on or off"
    CHOICE = "one of a few words"
    NAMES = "names, separated by commas"
    WORDS = "words, quoted as in a shell"
    PAIRS = "names with a value each"
    SECRETS = "names of stored secrets"


class Section(Enum):
    """The part of the launch form that asks for a field."""

    CODE = "what runs"
    RUN = "how the run is named and started"
    SCALE = "where it trains"
    SLURM = "the job of a Slurm cluster"
    TRAINING = "how it trains"
    ADVANCED = "environment, data and nodes"
    FAILURES = "what follows a failure"


# The meaning of another value for a training that continues from a checkpoint, where several fields share it.

OTHER_LENGTH = "A schedule that is computed from the length gives another learning rate at this step: it jumps."
OTHER_DATA = "The data are others: the position in them means nothing, and the loss cannot be compared."
OTHER_CODE = "The code is other code: names and shapes of parameters may no longer fit, nor the order of the data."


@dataclass(frozen=True)
class Row:
    """A row of the catalogue, as the mark of a field: `seed: Annotated[int, Row("Seed")]`."""

    label: str
    label_without_gpus: str = ""
    """The label where no node has a GPU."""
    help: str = ""
    several: str = ""
    """What several values in the form's field do."""
    section: Section | None = None
    """None: neither the form nor the command line asks for it."""
    example: str = ""
    unset: str = ""
    """What applies without a value."""
    option: str = ""
    """The option of the command line, without dashes; empty: the field's name."""
    metavar: str | None = None
    unit: str = ""
    script_options: str = ""
    """The names of scripts' own options for the value, the most specific first; empty: it is not passed to scripts."""
    entry_label: str = ""
    """The label of one entry, where entries are compared one by one."""
    resumed: str = ""
    """The meaning of a change for a training that continues from a checkpoint; empty: it does not notice."""
    is_compared: bool = True
    is_searched: bool = True
    name: str = ""
    """In the form and on the command line; empty: the field's."""
    kind: InputKind | None = None
    """None: that of the field's type."""
    choices: tuple[str, ...] = ()
    type: Any = None
    """Of the field, as all that follows."""
    default: Any = None

    @property
    def offered(self) -> tuple[str, ...]:
        """The words to choose from, first the one for no choice; none where any text is a value."""
        return (*filter(None, [self.unset]), *self.choices) if self.choices else ()

    @property
    def placeholder(self) -> str:
        """The text of an empty input."""
        return self.example or self.unset


def catalogue(model: type[BaseModel]) -> dict[str, Row]:
    """Return the rows of a model's fields, in their order. Raises ValueError for a field without a row."""
    return {name: _row(name, field) for name, field in model.model_fields.items()}


KINDS: dict[Any, InputKind] = {
    str: InputKind.TEXT, int: InputKind.NUMBER, float: InputKind.NUMBER, bool: InputKind.FLAG,
    Literal: InputKind.CHOICE, list: InputKind.NAMES,
    dict: InputKind.PAIRS,
}  # fmt: skip


def _row(name: str, field: FieldInfo) -> Row:
    [row] = [mark for mark in marks_of(field) if isinstance(mark, Row)]
    bare = _bare(field.annotation)
    kind = row.kind or KINDS.get(get_origin(bare) or bare)
    default = None if field.is_required() else field.default
    choices = get_args(bare) if kind is InputKind.CHOICE else ()
    return replace(row, name=row.name or name, kind=kind, type=bare, choices=choices, default=default)


def _bare(annotation: Any) -> Any:
    """Return a type without None and marks."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return _bare(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation
