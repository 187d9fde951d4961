"""Rows of the store as documents, and back: values from elsewhere are checked against their columns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, create_model
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Integer, String, Table

from db.models import (
    Attempt,
    Checkpoint,
    File,
    FindingRow,
    HistoryEntry,
    Node,
    ProfiledRank,
    Run,
    Series,
    Snapshot,
    Task,
)
from db.models.base import Base, ExactFloat

Row = TypeVar("Row", bound=Base)
OWN_TO_A_STORE: Mapping[type[Base], frozenset[str]] = {
    Run: frozenset({"baseline_at"}),
    Attempt: frozenset({"fence", "run_id", "uid", "stacks_requested_at", "resize_requested_at"}),
    Task: frozenset({"fence"}),
    Node: frozenset(
        {"instance_id", "token_hash", "drain_requested_at", "unknown_ends", "unknown_attempts", "protocol",
         "load", "foreign_devices", "removed_at"}
    ),
    File: frozenset({"fence"}),
    Series: frozenset({"fence"}),
    Checkpoint: frozenset({"fence", "location", "upload_id", "upload_began_at", "trouble"}),
    FindingRow: frozenset({"id", "fence"}),
    ProfiledRank: frozenset({"fence"}),
    HistoryEntry: frozenset({"id", "run_id"}),
    Snapshot: frozenset(),
}  # fmt: skip
"""Columns that mean nothing in another store, or are no other's business."""


def document_of(row: Base) -> dict[str, Any]:
    """Return the values of a row that mean the same in every store."""
    return {column.key: getattr(row, column.key) for column in _columns(type(row))}


def row_of(table: type[Row], document: Mapping[str, Any], **more: Any) -> Row:
    """Return a new row with the document's values, and `more` in place of some. Raises ValidationError."""
    return table(**checked(table, document) | more)


def checked(table: type[Base], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document's values of the table's columns; others are ignored. Raises ValidationError."""
    return _model(table).model_validate(document).model_dump(exclude_unset=True)


def _columns(table: type[Base]) -> list[Column[Any]]:
    columns = cast(Table, table.__table__).columns
    return [column for column in columns if column.key not in OWN_TO_A_STORE[table]]


@cache
def _model(table: type[Base]) -> type[BaseModel]:
    fields: dict[str, Any] = {column.key: _field(column) for column in _columns(table)}
    return create_model(table.__name__, __config__=ConfigDict(extra="ignore"), **fields)


def _field(column: Column[Any]) -> tuple[Any, Any]:
    kind = _kind(column)
    if column.nullable:
        return (kind | None, None)
    has_default = column.default is not None or column.server_default is not None
    return (kind, None if has_default else ...)


def _kind(column: Column[Any]) -> Any:
    match column.type:
        case ExactFloat() | Float():
            return float
        case Boolean():
            return bool
        case JSON():
            return dict[str, Any] | list[Any]
        case String() as text:
            return Annotated[str, Field(max_length=text.length)]
        case Integer() as number:
            most = 2**63 if isinstance(number, BigInteger) else 2**31
            return Annotated[int, Field(ge=-most, lt=most)]
    raise TypeError(f"{column} is of no kind that an archive holds")
