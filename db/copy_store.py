"""Copy an SQLite store to PostgreSQL in one transaction, verified by row counts and checksums."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Integer, Table, create_engine, delete, func, insert, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError

from db.engine import Store, StoreUnusable, newest_schema
from db.models import Base, StoreIdentity, User
from db.models.base import dump_json
from db.postgres import NUL, NUL_SHOWN

ROWS_AT_ONCE = 1000
"""Rows per insert; six megabytes for the largest rows, packed points."""
Row = dict[str, Any]


class NotMoved(Exception):
    """The store was not copied and the target is unchanged; the sentence says why and what to do."""


@dataclass
class Sum:
    """A row count and a checksum that is independent of the rows' order."""

    rows: int = 0
    checksum: int = 0

    def add(self, rows: list[Row]) -> None:
        """Add rows to the count and the checksum."""
        self.rows += len(rows)
        for row in rows:
            self.checksum = (self.checksum + int.from_bytes(_digest(row), "big")) % 2**256


def sqlite_file(url: str) -> Path:
    """The file of an SQLite URL. Raises NotMoved when it is not one or does not exist."""
    try:
        parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    except ArgumentError:
        raise NotMoved("--from is not the URL of a store: use sqlite:////absolute/path/rankzero.db") from None
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise NotMoved("--from must be an SQLite store: sqlite:////absolute/path/rankzero.db")
    file = Path(parsed.database).absolute()
    if not file.is_file():
        raise NotMoved(f"There is no SQLite store {file}.")
    return file


def copy_store(
    file: Path, target_url: str, tell: Callable[[str, int], None] = lambda table, rows: None
) -> dict[str, int]:
    """Copy all tables; return the number of rows of each. No other program may have the file open. Raises NotMoved."""
    source = _read_only(file)
    try:
        _require_current(source, file)
        target = Store.open(target_url)
        try:
            return _copy(source, target, tell)
        finally:
            target.close()
    except StoreUnusable as error:
        raise NotMoved(str(error)) from None
    except DBAPIError as error:
        raise NotMoved(f"The copy failed, and nothing was kept: {str(error.orig).strip()}") from None
    finally:
        source.dispose()


def _copy(source: Engine, target: Store, tell: Callable[[str, int], None]) -> dict[str, int]:
    if target.is_sqlite:
        raise NotMoved("--to must be PostgreSQL: postgresql+psycopg://USER@HOST/DATABASE")
    with source.connect() as old, target.write() as session:
        new = session.connection()
        new.execute(text("set local statement_timeout = 0"))
        new.execute(text("set local idle_in_transaction_session_timeout = 0"))
        _require_empty(new, target.name)
        for table_class in MADE_WITH_STORE:  # it stays the store it was, with its people
            new.execute(delete(table_class))
        copied = {}
        for table in Base.metadata.sorted_tables:
            copied[table.name] = _copy_table(table, old, new)
            tell(table.name, copied[table.name])
        _go_on_counting(old, new)
        return copied


def _copy_table(table: Table, old: Connection, new: Connection) -> int:
    """Copy the rows of a table, read them back and compare; return their number."""
    sent, arrived = Sum(), Sum()
    for rows in _rows(table, old):
        sent.add(rows)
        new.execute(insert(table), rows)
    for rows in _rows(table, new):
        arrived.add(rows)
    if sent != arrived:
        raise NotMoved(
            f"The table {table.name} is not the same after copying ({sent.rows} rows sent, {arrived.rows} "
            "arrived, or their checksums differ). Nothing was kept."
        )
    return sent.rows


def _rows(table: Table, connection: Connection) -> Iterator[list[Row]]:
    """All rows in batches, with the NUL characters replaced that PostgreSQL cannot store."""
    result = connection.execute(select(table), execution_options={"yield_per": ROWS_AT_ONCE})
    for rows in result.mappings().partitions():
        yield [{name: _without_nul(value) for name, value in row.items()} for row in rows]


def _without_nul(value: Any) -> Any:
    return value.replace(NUL, NUL_SHOWN) if isinstance(value, str) else value


def _digest(row: Row) -> bytes:
    values = [_exact(row[name]) for name in sorted(row)]
    return hashlib.sha256(json.dumps(values).encode()).digest()


def _exact(value: Any) -> Any:
    """A JSON value that is equal for equal values of both stores."""
    if isinstance(value, float):
        return struct.pack("<d", value).hex()
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, dict | list):
        return json.dumps(json.loads(dump_json(value)), sort_keys=True)
    return value


def _go_on_counting(old: Connection, new: Connection) -> None:
    """Set the sequences so that new ids follow all old ones: a fencing token is never used twice."""
    for table in Base.metadata.sorted_tables:
        key, *others = table.primary_key.columns
        if others or not isinstance(key.type, Integer):
            continue
        highest = max(new.scalar(select(func.max(key))) or 0, _highest_ever(old, table.name))
        if highest:
            sequence = func.pg_get_serial_sequence(table.name, key.name)
            new.execute(select(func.setval(sequence, highest)))


def _highest_ever(old: Connection, table: str) -> int:
    query = text("select seq from sqlite_sequence where name = :table")
    return int(old.scalar(query, {"table": table}) or 0)


def _read_only(file: Path) -> Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)

    return create_engine("sqlite://", creator=connect)


def _require_current(source: Engine, file: Path) -> None:
    try:
        with source.connect() as connection:
            revision = connection.scalar(text("select version_num from alembic_version"))
    except DatabaseError as error:
        raise NotMoved(f"{file} cannot be read as a Rankzero store ({error.orig}).") from None
    if revision != newest_schema():
        raise NotMoved(
            f"The store {file} is of another version (schema {revision}, this version needs "
            f"{newest_schema()}). Start this dashboard on it once, stop it, then copy."
        )


MADE_WITH_STORE = (StoreIdentity, User)
"""Each new store has an identity and its owner."""


def _require_empty(new: Connection, name: str) -> None:
    rows_of_new = {model.__tablename__: 1 for model in MADE_WITH_STORE}
    for table in Base.metadata.sorted_tables:
        if new.execute(select(table).offset(rows_of_new.get(table.name, 0)).limit(1)).first() is not None:
            raise NotMoved(f"The store {name} is not empty: its table {table.name} has rows. Choose an empty database.")
