"""A search for runs as a condition in SQL, and the order of a list of runs."""

from __future__ import annotations

import operator
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from sqlalchemy import ColumnElement, UnaryExpression, and_, false, func, literal, not_, or_, select, true

from db.models import Attempt, ImportedRun, Node, Run, RunTag, Series, Task
from db.search.run_fields import NUMBER, ascii_lower, is_named, value_of
from domain.search.fields import ANYWHERE, FIELDS, Column, Sort
from domain.search.query import Comparison, Condition, FieldKind, Query

_ORDER: dict[Comparison, Any] = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.EQUAL: operator.eq,
}


def matches(query: Query, now: float) -> ColumnElement[bool]:
    """Whether a run and its latest attempt match the search."""
    return or_(*(and_(true(), *(_is_met(c, now) for c in conditions)) for conditions in query.alternatives))


def in_order(sort: Sort | None, now: float) -> list[ColumnElement[Any]]:
    """The ORDER BY of a list: runs without the value last, then the newest first."""
    newest: list[ColumnElement[Any]] = [Run.created_at.desc(), Run.id.expression]
    if sort is None:
        return newest
    value = value_of(sort.column, now)
    if sort.column.kind in (FieldKind.NAME, FieldKind.TEXT):
        value = ascii_lower(value)
    direction: UnaryExpression[Any] = value.desc() if sort.is_descending else value.asc()
    return [direction.nulls_last(), *newest]


def _is_met(condition: Condition, now: float) -> ColumnElement[bool]:
    if (is_so := _is_found(condition)) is None:
        is_so = func.coalesce(_holds(condition, now), false())
    return not_(is_so) if condition.is_negated else is_so


def _is_found(condition: Condition) -> ColumnElement[bool] | None:
    """Whether another table has a row of the run that meets the condition; None for conditions on the run itself.

    A small table is read once, as a set from which the database may begin; series are looked up run by run."""
    if condition.kind is FieldKind.SERIES:
        is_there = and_(is_named(condition.name), _compared(Series.last_number.expression, condition))
        return select(Series.id).where(is_there).exists()
    if condition.name == "tag":
        return Run.id.in_(select(RunTag.run_id).where(_compared(RunTag.tag.expression, condition)))
    if condition.name == "node":
        tasks = select(Task.fence).join(Node, Node.id == Task.node_id)
        return Attempt.fence.in_(tasks.where(_compared(Node.name.expression, condition)))
    return _is_imported(condition) if condition.name == "imported" else None


def _holds(condition: Condition, now: float) -> ColumnElement[bool]:
    """The comparison; NULL where the run lacks the value."""
    if condition.kind is FieldKind.ANYWHERE:
        texts = (value_of(Column(FIELDS[name], name), now) for name in ANYWHERE)
        return or_(*(_compared(func.coalesce(text, ""), condition) for text in texts))
    return _compared(value_of(Column(condition.kind, condition.name), now), condition)


def _is_imported(condition: Condition) -> ColumnElement[bool]:
    """Whether a run was imported, or by this importer."""
    marks = select(ImportedRun.run_id)
    match lowered(str(condition.value)):
        case "yes":
            return Run.id.in_(marks)
        case "no":
            return Run.id.not_in(marks)
    return Run.id.in_(marks.where(_compared(ImportedRun.format.expression, condition)))


def _compared(value: ColumnElement[Any], condition: Condition) -> ColumnElement[bool]:
    operand = condition.value
    if isinstance(operand, str):
        text = lowered(operand)
        if condition.operator is Comparison.CONTAINS:
            return ascii_lower(value).contains(text, autoescape=True)
        return ascii_lower(value) == text
    if isinstance(operand, bool):
        return value.is_(operand) if condition.kind is FieldKind.FLAG else value == operand
    compared: ColumnElement[bool] = _ORDER[condition.operator](value, literal(operand, NUMBER))
    return compared


def lowered(text: str) -> str:
    """Text with small letters for A to Z, as every database does it."""
    return text.translate(_CAPITALS)


_CAPITALS = str.maketrans(ascii_uppercase, ascii_lowercase)
