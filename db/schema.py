"""Compare the store's tables with those this version expects, and add what is missing."""

from __future__ import annotations

from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, Index, Table, text
from sqlalchemy.sql.schema import ScalarElementColumnDefault

from db.models import Base

VALUES = {("attempts", "preflighted_at"): "update attempts set preflighted_at = started_at"}
"""Statements that fill an added column in existing rows."""

COLUMNS = {
    "sqlite": "select t.name, c.name from sqlite_master t, pragma_table_info(t.name) c where t.type = 'table'",
    "postgresql": "select table_name, column_name from information_schema.columns "
    "where table_schema = current_schema()",
}
INDEXES = {
    "sqlite": "select tbl_name, name from sqlite_master where type = 'index'",
    "postgresql": "select tablename, indexname from pg_indexes where schemaname = current_schema()",
}
"""One statement each: SQLAlchemy's inspector takes several for each table, 200 ms of CPU on PostgreSQL."""
Names = dict[str, set[str]]


class CannotAdd(Exception):
    """A missing column needs a value in existing rows; its name is the message."""


def missing(connection: Connection) -> list[str]:
    """Names of tables, columns and indexes that the store lacks."""
    present = _columns(connection)
    return [
        *(table.name for table in _missing_tables(present)),
        *(f"{table.name}.{column.name}" for table, column in _missing_columns(present)),
        *(str(index.name) for index in _missing_indexes(connection)),
    ]


def add_missing(connection: Connection) -> list[str]:
    """Add everything that `missing` names, in the caller's transaction; return the names. Raises CannotAdd."""
    names, present = missing(connection), _columns(connection)
    Base.metadata.create_all(connection, tables=_missing_tables(present))
    operations = Operations(MigrationContext.configure(connection))
    for table, column in _missing_columns(present):
        operations.add_column(table.name, _addable(table, column))
        if (values := VALUES.get((table.name, column.name))) is not None:
            connection.execute(text(values))
    for index in _missing_indexes(connection):
        index.create(connection)
    return names


def _missing_tables(present: Names) -> list[Table]:
    return [table for table in Base.metadata.sorted_tables if table.name not in present]


def _missing_columns(present: Names) -> list[tuple[Table, Column[object]]]:
    return [
        (table, column)
        for table in Base.metadata.sorted_tables
        if table.name in present
        for column in table.columns
        if column.name not in present[table.name]
    ]


def _missing_indexes(connection: Connection) -> list[Index]:
    """The indexes that tables of the store lack; a missing table brings its own."""
    tables, present = _columns(connection), _names(connection, INDEXES)
    return [
        index
        for table in Base.metadata.sorted_tables
        if table.name in tables
        for index in table.indexes
        if index.name not in present.get(table.name, ())
    ]


def _columns(connection: Connection) -> Names:
    return _names(connection, COLUMNS)


def _names(connection: Connection, statements: dict[str, str]) -> Names:
    """Names by table, from a statement whose rows are a table and a name."""
    found: Names = {}
    for table, name in connection.execute(text(statements[connection.dialect.name])):
        found.setdefault(table, set()).add(name)
    return found


def _addable(table: Table, column: Column[object]) -> Column[object]:
    """A copy of the column that can be added to existing rows: nullable or with its default. Raises CannotAdd."""
    default: Any = column.server_default
    if default is None and isinstance(column.default, ScalarElementColumnDefault):
        default = text(repr(column.default.arg))
    if column.primary_key or column.foreign_keys or not (column.nullable or default is not None):
        raise CannotAdd(f"{table.name}.{column.name}")
    return Column(column.name, column.type, nullable=column.nullable, server_default=default)
