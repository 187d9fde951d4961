"""The open store, on SQLite or PostgreSQL: transactions, the trouble that stops them, migrations at start."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Self

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from db import identity
from db.models import Base
from db.postgres import PostgresDatabase
from db.sqlite import SqliteDatabase
from db.trouble import StoreGone as StoreGone
from db.trouble import StoreMissing, Trouble, trouble_of
from db.trouble import StoreUnusable as StoreUnusable
from domain.clock import SYSTEM_CLOCK


class Store:
    """All access to the database; what SQLite and PostgreSQL do differently is in `database`."""

    def __init__(self, database: SqliteDatabase | PostgresDatabase) -> None:
        self.database = database
        self.name = database.name
        self.is_sqlite = isinstance(database, SqliteDatabase)
        self.trouble: Trouble | None = None
        """Why the last write failed, while that lasts; None when writes succeed."""
        self.heard_of: Callable[[str], float] = lambda node_id: 0.0
        """The time of a node's last heartbeat that is not stored yet, by node id."""

    @classmethod
    def open(cls, where: str | Path, backups: Path | None = None, *, may_be_new: bool = True) -> Self:
        """Open a file or URL and bring its tables up to date; a copy is kept in `backups` before each change.

        Raises StoreMissing when there is none and it may not be new, StoreUnusable when it is damaged, of a newer
        version, or cannot be reached."""
        url = str(where) if "://" in str(where) else f"sqlite:///{where}"
        is_sqlite = url.startswith("sqlite")
        store = cls(SqliteDatabase(url, may_be_new=may_be_new) if is_sqlite else PostgresDatabase(url))
        try:
            store.trouble = store.database.check(backups)
            store._migrate(backups, may_be_new=may_be_new)
            with store.write() as session:
                identity.current(session)
        except (DBAPIError, sqlite3.Error, OSError, PoolTimeout) as error:
            store.close()
            trouble = store.trouble_of(error)
            if trouble is None:
                raise
            raise StoreUnusable(f"The store {store.name} cannot be opened. {trouble}") from None
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def look_into(cls, file: Path) -> Self:
        """Open an SQLite file that a dashboard may use, for `read` alone: nothing is created, checked or migrated.

        Raises StoreMissing."""
        return cls(SqliteDatabase(f"sqlite:///{file}", may_be_new=False))

    @contextmanager
    def write(self, *scopes: str) -> Iterator[Session]:
        """One transaction that may write: everything in it is stored, or nothing.

        Rows it reads do not change until it ends. Transactions with different `scopes` (attempts, files) run
        concurrently (PostgreSQL)."""
        self.database.require()
        with self._noting(), self.database.writing(scopes, self.trouble) as session:
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One read transaction with a consistent view of the store."""
        self.database.require()
        reading = Session(self.database.readers, expire_on_commit=False, info={"heard_of": self.heard_of})
        with self._noting(is_write=False), reading as session, session.begin():
            yield session

    @contextmanager
    def alone(self, *names: str) -> Iterator[None]:
        """Exclude other dashboards from sections with one of these names; threads need locks of their own."""
        with self._noting(is_write=False), self.database.alone(names):
            yield

    def try_again(self) -> None:
        """Check whether a store that rejected writes accepts them again; call it every second or so."""
        if self.trouble is None:
            return
        with suppress(DBAPIError, PoolTimeout):
            with self.write() as session:
                self.database.touch(session)
            log.info("the store accepts writes again")
            self.trouble = None

    @contextmanager
    def _noting(self, *, is_write: bool = True) -> Iterator[None]:
        """Remember why a write failed, or that the database cannot even be read."""
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            if is_write or self.trouble_of(error) is Trouble.AWAY:
                self.note(error)
            raise

    def note(self, error: BaseException) -> Trouble | None:
        """Remember the trouble that an error indicates, log it once, and return it; None when it has another cause."""
        trouble = self.trouble_of(error)
        if trouble is not None and trouble is not self.trouble:
            log.warning("%s", trouble)
        self.trouble = trouble or self.trouble
        return trouble

    def trouble_of(self, error: BaseException) -> Trouble | None:
        """The trouble that an error indicates; None when it has another cause."""
        return trouble_of(error, self.database.file)

    def backup(self, target: Path) -> int:
        """Write a consistent copy of an SQLite store to `target`, also under load; return its size in bytes.

        Raises StoreUnusable for PostgreSQL, which has pg_dump."""
        self.database.backup(target)
        return target.stat().st_size

    def close(self) -> None:
        """Close every connection."""
        self.database.close()

    def _migrate(self, backups: Path | None, *, may_be_new: bool = True) -> None:
        scripts = _scripts()
        with self.database.readers.connect() as connection:  # a foreign program's lock does not prevent reading
            current = MigrationContext.configure(connection).get_current_revision()
            if current == scripts.get_current_head():
                self._require_whole(connection)
                return
        if current is None and not may_be_new:
            raise StoreMissing(self.name)
        if current is not None and current not in {s.revision for s in scripts.walk_revisions()}:
            raise StoreUnusable(
                f"The store {self.name} was written by a newer Rankzero (schema {current}). "
                "Install that version again, or start with another --data directory."
            )
        name = f"before-{newest_schema()}-{int(SYSTEM_CLOCK.wall())}.db"
        with self.database.migrating(backups / name if backups and current else None) as connection:
            command.upgrade(_config(connection=connection), "head")
            self._require_whole(connection)

    def _require_whole(self, connection: Connection) -> None:
        """Compare with the newest schema what was migrated to it. Raises StoreUnusable when something is not there."""
        if lacking := _lacking(connection):
            raise StoreUnusable(
                f"The store {self.name} lacks {', '.join(lacking)}, which schema {newest_schema()} has: something "
                "other than Rankzero changed it. Restore an intact copy, or start with another --data directory."
            )


log = logging.getLogger("rankzero")
MIGRATIONS = Path(__file__).parent / "migrations"


def newest_schema() -> str:
    """The schema revision of this version."""
    return str(_scripts().get_current_head())


@cache
def _scripts() -> ScriptDirectory:
    """The migrations, read and compiled once in a process: that takes longer than all else at opening a store."""
    return ScriptDirectory.from_config(_config())


def _config(**attributes: object) -> Config:
    config = Config(attributes=attributes)
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


COLUMNS = {
    "sqlite": "select t.name, c.name from sqlite_master t, pragma_table_info(t.name) c where t.type = 'table'",
    "postgresql": "select table_name, column_name from information_schema.columns "
    "where table_schema = current_schema()",
}
INDEXES = {
    "sqlite": "select tbl_name, name from sqlite_master where type = 'index'",
    "postgresql": "select tablename, indexname from pg_indexes where schemaname = current_schema()",
}
TRIGGERS = {
    "sqlite": "select tbl_name, name from sqlite_master where type = 'trigger' and sql like '%raise(abort%'",
    "postgresql": "select c.relname, t.tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid "
    "join pg_proc p on p.oid = t.tgfoid join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = current_schema() and t.tgenabled in ('O', 'A') and p.prosrc like '%raise exception%'",
}
"""One statement each: SQLAlchemy's inspector takes several for each table, 200 ms of CPU on PostgreSQL."""
AUDIT_GUARDS = {
    "sqlite": ("audit_update", "audit_delete", "audit_replace"),
    "postgresql": ("audit_update", "audit_delete", "audit_truncate"),
}
"""The triggers that refuse to change or remove what the audit log says."""


def _lacking(connection: Connection) -> list[str]:
    """Name the tables, columns, indexes and triggers that the store lacks; one that refuses nothing is none."""
    columns, indexes = _names(connection, COLUMNS), _names(connection, INDEXES)
    lacking: list[str] = []
    for table in Base.metadata.sorted_tables:
        if table.name not in columns:
            lacking.append(f"the table {table.name}")
            continue
        expected = {column.name for column in table.columns}
        lacking += [f"the column {table.name}.{name}" for name in sorted(expected - columns[table.name])]
        names = {str(index.name) for index in table.indexes}
        lacking += [f"the index {name}" for name in sorted(names - indexes.get(table.name, set()))]
    guards = set(AUDIT_GUARDS[connection.dialect.name]) - _names(connection, TRIGGERS).get("audit", set())
    return lacking + [f"the trigger {name}, which keeps the audit log append-only" for name in sorted(guards)]


def _names(connection: Connection, statements: dict[str, str]) -> dict[str, set[str]]:
    """Names by table, from a statement whose rows are a table and a name."""
    names: dict[str, set[str]] = {}
    for table, name in connection.execute(text(statements[connection.dialect.name])):
        names.setdefault(table, set()).add(name)
    return names
