"""Statements that many rows go through: built once, and without what SQLAlchemy does for each row."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Insert, Update
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import Session


class Prepared:
    """An insert or update of many rows, whose values the database's driver takes as they are."""

    def __init__(self, statement: Insert | Update, *names: str) -> None:
        """`names` are those of the values in each row: columns, and parameters of the statement."""
        self._statement, self._names = statement, names
        self._compiled: dict[str, tuple[str, itemgetter[Any]]] = {}

    def run(self, session: Session, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run the statement for all rows."""
        if not rows:
            return
        connection = session.connection()
        if connection.dialect.name not in self._compiled:
            self._compiled[connection.dialect.name] = self._compile(connection.dialect)
        text, in_order = self._compiled[connection.dialect.name]
        connection.exec_driver_sql(text, [in_order(row) for row in rows])

    def _compile(self, dialect: Dialect) -> tuple[str, itemgetter[Any]]:
        paramstyle = "qmark" if dialect.name == "sqlite" else "format"
        positional = type(dialect)(paramstyle=paramstyle)  # type: ignore[call-arg]
        columns = [name for name in self._names if name in self._statement.table.c]
        compiled = self._statement.compile(dialect=positional, column_keys=columns)
        assert compiled.positiontup is not None
        return str(compiled), itemgetter(*map(self._names.index, compiled.positiontup))
