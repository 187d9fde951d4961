"""A parsed search: alternatives of conditions, and the error that points at a word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Value = str | float | bool


class FieldKind(StrEnum):
    """How the values of a field are compared."""

    NAME = "name"
    """Text that is compared as a whole; case is ignored, as in all text."""
    TEXT = "text"
    """Text in which `:` finds a part."""
    NUMBER = "number"
    FLAG = "yes or no"
    MOMENT = "time"
    """Seconds since the epoch, written as a date or as an age."""
    DURATION = "duration"
    SERIES = "series"
    """The last value of a series of the latest attempt."""
    ANYWHERE = "anywhere"
    """A word or quoted text, which may be part of any of `fields.ANYWHERE`."""


class Comparison(StrEnum):
    """The comparisons; `!=` is a negated `=`."""

    CONTAINS = ":"
    EQUAL = "="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


@dataclass(frozen=True)
class Condition:
    """One comparison. A run without the value does not meet it, and so meets the negated one."""

    kind: FieldKind
    name: str
    """The field's name or the series'; empty for `FieldKind.ANYWHERE`."""
    operator: Comparison
    value: Value
    is_negated: bool = False


@dataclass(frozen=True)
class Query:
    """A search: all conditions of at least one alternative must hold."""

    alternatives: tuple[tuple[Condition, ...], ...] = ((),)

    def mentions(self, name: str) -> bool:
        """Whether a condition is about this field."""
        return any(condition.name == name for conditions in self.alternatives for condition in conditions)


class QueryError(Exception):
    """An error in a search: what is wrong, and the characters `start` to `end` (exclusive) that it is about."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start, self.end = start, end


EVERYTHING = Query()
