"""Compare the store's tables with those this version expects, and add what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, Table, inspect, text
from sqlalchemy.sql.schema import ScalarElementColumnDefault

from db.models import Base

VALUES = {("attempts", "preflighted_at"): "update attempts set preflighted_at = started_at"}
"""Statements that fill an added column in existing rows."""


class CannotAdd(Exception):
    """A missing column needs a value in existing rows; its name is the message."""


def missing(connection: Connection) -> list[str]:
    """Names of tables, columns and indexes that the store lacks."""
    return [
        *(table.name for table in _missing_tables(connection)),
        *(f"{table.name}.{column.name}" for table, column in _missing_columns(connection)),
        *_missing_indexes(connection),
    ]


def add_missing(connection: Connection) -> list[str]:
    """Add everything that `missing` names, in the caller's transaction; return the names. Raises CannotAdd."""
    names = missing(connection)
    tables, columns = list(_missing_tables(connection)), list(_missing_columns(connection))
    Base.metadata.create_all(connection, tables=tables)
    operations = Operations(MigrationContext.configure(connection))
    for table, column in columns:
        operations.add_column(table.name, _addable(table, column))
        if (values := VALUES.get((table.name, column.name))) is not None:
            connection.execute(text(values))
    absent = set(_missing_indexes(connection))
    for table in Base.metadata.sorted_tables:
        for index in table.indexes:
            if index.name in absent:
                index.create(connection)
    return names


def _missing_tables(connection: Connection) -> Iterator[Table]:
    present = set(inspect(connection).get_table_names())
    return (table for table in Base.metadata.sorted_tables if table.name not in present)


def _missing_columns(connection: Connection) -> Iterator[tuple[Table, Column[object]]]:
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    for table in Base.metadata.sorted_tables:
        if table.name in present:
            names = {column["name"] for column in inspector.get_columns(table.name)}
            yield from ((table, column) for column in table.columns if column.name not in names)


def _missing_indexes(connection: Connection) -> list[str]:
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    return [
        str(index.name)
        for table in Base.metadata.sorted_tables
        if table.name in present
        for index in table.indexes
        if index.name not in {existing["name"] for existing in inspector.get_indexes(table.name)}
    ]


def _addable(table: Table, column: Column[object]) -> Column[object]:
    """A copy of the column that can be added to existing rows: nullable or with its default. Raises CannotAdd."""
    default: Any = column.server_default
    if default is None and isinstance(column.default, ScalarElementColumnDefault):
        default = text(repr(column.default.arg))
    if column.primary_key or column.foreign_keys or not (column.nullable or default is not None):
        raise CannotAdd(f"{table.name}.{column.name}")
    return Column(column.name, column.type, nullable=column.nullable, server_default=default)
