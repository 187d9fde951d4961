"""Whether a run matches a search, decided from plain values: what the store's SQL is held against."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from db.search.run_search import lowered
from domain.search.fields import ANYWHERE
from domain.search.query import Comparison, Condition, FieldKind, Query, Value

_ORDER = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.EQUAL: operator.eq,
}


@dataclass(frozen=True)
class Record:
    """A run as the search sees it: the values of each field (none where it has no value), last values of series."""

    fields: Mapping[str, tuple[Value, ...]]
    series: Mapping[str, float] = field(default_factory=dict)


def matches(query: Query, record: Record) -> bool:
    """Whether the record meets all conditions of an alternative."""
    return any(all(_is_met(condition, record) for condition in alternative) for alternative in query.alternatives)


def _is_met(condition: Condition, record: Record) -> bool:
    values = _values(condition, record)
    return any(_compared(condition, value) for value in values) != condition.is_negated


def _values(condition: Condition, record: Record) -> tuple[Value, ...]:
    if condition.kind is FieldKind.SERIES:
        return (record.series[condition.name],) if condition.name in record.series else ()
    names = ANYWHERE if condition.kind is FieldKind.ANYWHERE else (condition.name,)
    return tuple(value for name in names for value in record.fields.get(name, ()))


def _compared(condition: Condition, value: Value) -> bool:
    if isinstance(value, str):
        text, operand = lowered(value), lowered(str(condition.value))
        return operand in text if condition.operator is Comparison.CONTAINS else operand == text
    compare: Any = _ORDER[condition.operator]
    return bool(compare(value, condition.value))
