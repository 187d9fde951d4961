"""The open store: SQLite with one writer, or PostgreSQL with locks by name; migrations at start."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from db import identity, postgres, schema
from db.models.base import dump_json
from db.postgres import PostgresUnusable
from db.store_file import StoreFile, StoreMissing, make_file, newest_copy
from db.store_file import StoreGone as StoreGone
from db.store_file import StoreUnusable as StoreUnusable
from db.trouble import StoreBusy, Trouble, trouble_of

log = logging.getLogger("rankzero")
MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_TIMEOUT_S = 15
"""How long a read waits for a foreign program that has locked the file."""
TURN_LIMIT_S = 25.0
"""How long a write waits for earlier writes and for foreign programs; shorter than clients' timeouts of 30 s."""
POOL_LIMIT_S = 10
"""How long a read waits for a connection."""
LOCKED_LIMIT_S = 1.0
"""How long a write waits once a foreign program is known to hold the lock, so that no queue builds up."""


class Store:
    """All access to the database.

    SQLite takes one writer at a time, so here there is exactly one writer connection, which also does every WAL
    checkpoint (SQLite before 3.51.3 can corrupt the file otherwise). On PostgreSQL several dashboards write at
    once: each transaction locks what it is about before it reads, so that the code is the same for both."""

    _writer: Engine
    _readers: Engine
    locks: Engine

    def __init__(self, url: str) -> None:
        self.is_sqlite = url.startswith("sqlite")
        self._write_lock = threading.RLock()
        self._file: StoreFile | None = None
        self._busy_s = TURN_LIMIT_S
        self.trouble: Trouble | None = None
        """Why the last write failed, while that lasts; None when writes succeed."""
        self.heard_of: Callable[[str], float] = lambda node_id: 0.0
        """The time of a node's last heartbeat that is not stored yet, by node id."""
        if self.is_sqlite:
            self.url, self.name = url, url
            self._path = _sqlite_file(url).absolute()
            self._open_sqlite(alone=False)
        else:
            parsed = postgres.parse_url(url)
            self.url = parsed.render_as_string(hide_password=False)
            self.name = postgres.without_password(parsed)
            self._writer = postgres.open_engine(parsed)
            self._readers = self._writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            self.locks = postgres.open_engine(parsed, pool_size=1)

    @classmethod
    def open(cls, where: str | Path, backups: Path | None = None, *, may_be_new: bool = True) -> Self:
        """Open a file or URL and bring its tables up to date; a copy is kept in `backups` before each change.

        Raises StoreMissing when there is none and it may not be new, StoreUnusable when it is damaged, of a newer
        version, or cannot be reached."""
        url = str(where) if "://" in str(where) else f"sqlite:///{where}"
        if url.startswith("sqlite"):
            if not may_be_new and not _sqlite_file(url).exists():
                raise StoreMissing(url)
            make_file(_sqlite_file(url))
        try:
            store = cls(url)
        except PostgresUnusable as error:
            raise StoreUnusable(str(error)) from None
        try:
            store._check_integrity(backups)
            store._migrate(backups, may_be_new=may_be_new)
            if store.is_sqlite:
                store._file = StoreFile(_sqlite_file(url))
                store._file.backups = backups
            with store.write() as session:
                identity.current(session)
        except PostgresUnusable as error:
            store.close()
            raise StoreUnusable(str(error)) from None
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

    @contextmanager
    def write(self, *scopes: str) -> Iterator[Session]:
        """One transaction that may write: everything in it is stored, or nothing.

        Rows it reads do not change until it ends. Transactions with different `scopes` (attempts, files) run
        concurrently (PostgreSQL)."""
        self._require_file()
        turn = self._turn() if self.is_sqlite else nullcontext()
        with self._noting(), turn, Session(self._writer, expire_on_commit=False) as session, session.begin():
            if not self.is_sqlite:
                connection = session.connection()
                postgres.lock_for_transaction(connection, "the store", shared=bool(scopes))
                for scope in sorted(scopes):  # in one order everywhere, so that nobody waits in a circle
                    postgres.lock_for_transaction(connection, scope)
            yield session

    def try_again(self) -> None:
        """Check whether a store that rejected writes accepts them again; call it every second or so."""
        if self.trouble is None:
            return
        with suppress(DBAPIError, PoolTimeout):
            with self.write() as session:
                if self.is_sqlite:  # a write that changes nothing but reaches the disk
                    version = session.execute(text("PRAGMA user_version")).scalar()
                    session.execute(text(f"PRAGMA user_version = {version}"))
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

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let one writer in at a time. Raises StoreBusy after a time limit."""
        limit_s = LOCKED_LIMIT_S if self.trouble is Trouble.LOCKED else TURN_LIMIT_S
        began = time.monotonic()
        if not self._write_lock.acquire(timeout=limit_s):
            raise StoreBusy(f"no write lock within {limit_s:.0f} s")
        try:
            self._busy_s = max(0.05, limit_s - (time.monotonic() - began))
            yield
        finally:
            self._write_lock.release()

    def trouble_of(self, error: BaseException) -> Trouble | None:
        """The trouble that an error indicates; None when it has another cause."""
        return trouble_of(error, self._path if self.is_sqlite else None)

    def _open_sqlite(self, alone: bool) -> None:
        self._is_alone = alone
        self._writer = _sqlite_engine(self._path, lambda: self._busy_s, writes=True, alone=alone)
        self._readers = _sqlite_engine(self._path, lambda: BUSY_TIMEOUT_S, writes=False, alone=alone)
        self.locks = self._writer

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One read transaction with a consistent view of the store."""
        self._require_file()
        info = {"heard_of": self.heard_of}
        reading = Session(self._readers, expire_on_commit=False, info=info)
        with self._noting(is_write=False), reading as session, session.begin():
            yield session

    @contextmanager
    def alone(self, *names: str) -> Iterator[None]:
        """Exclude other dashboards from sections with one of these names; threads need locks of their own."""
        if self.is_sqlite or not names:
            yield
            return
        with self._noting(is_write=False), self.locks.begin() as connection:
            for name in sorted(names):
                postgres.lock_for_transaction(connection, f"alone: {name}")
            yield

    def backup(self, target: Path) -> int:
        """Write a consistent copy of an SQLite store to `target`, also under load; return its size in bytes.

        Raises StoreUnusable for PostgreSQL, which has pg_dump."""
        if not self.is_sqlite:
            raise StoreUnusable(
                f"This store is on PostgreSQL, which has its own tool: pg_dump --format=custom "
                f"--file=rankzero.dump '{_for_pg_dump(self.name)}'"
            )
        _copy_sqlite(_connect_sqlite(self._path, self._is_alone), target)
        _rename_copy(target)
        return target.stat().st_size

    def close(self) -> None:
        """Close every connection."""
        for engine in (self._readers, self._writer, self.locks):
            postgres.close_engine(engine)

    def _require_file(self) -> None:
        if self._file is not None:
            self._file.require(self._save)

    def _save(self, target: Path) -> None:
        """Copy the open database, even if its file was deleted or replaced."""
        with self._write_lock:
            open_one = self._writer.raw_connection()
            copy = sqlite3.connect(target)
            try:
                cast(sqlite3.Connection, open_one.driver_connection).backup(copy)
            finally:
                copy.close()
                open_one.close()
        target.chmod(0o600)

    def _check_integrity(self, backups: Path | None) -> None:
        if not self.is_sqlite:
            postgres.require_usable(self._writer)
            return
        if not _sqlite_file(self.url).exists():
            return
        self._open_on_full_disk()
        try:
            with self.read() as session:
                verdict = session.execute(text("PRAGMA quick_check(1)")).scalar()
        except DatabaseError as error:
            if self.trouble_of(error) is not None:
                raise
            verdict = str(error.orig)
        if verdict != "ok":
            raise StoreUnusable(_damaged(_sqlite_file(self.url), str(verdict), backups))

    def _open_on_full_disk(self) -> None:
        """Open in exclusive mode when the disk is full: SQLite then needs no shared-memory file for the WAL's index."""
        try:
            with self.read() as session:
                session.execute(text("select count(*) from sqlite_master"))
        except DatabaseError as error:
            if self.trouble_of(error) is not Trouble.FULL:
                return
            self.close()
            self.trouble = Trouble.FULL
            self._open_sqlite(alone=True)

    def _migrate(self, backups: Path | None, *, may_be_new: bool = True) -> None:
        scripts = _scripts()
        with self._readers.connect() as connection:  # a foreign program's lock does not prevent reading
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
        if current is not None and backups is not None and self.is_sqlite:
            backups.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.backup(backups / f"before-{scripts.get_current_head()}-{int(time.time())}.db")
        with self._write_lock, self._writer.begin() as connection:
            if self.is_sqlite:
                self._upgrade(connection)
            else:
                self._upgrade_postgres(connection)

    def _upgrade(self, connection: Connection) -> None:
        """Migrate to the newest schema."""
        command.upgrade(_config(connection=connection), "head")
        self._require_whole(connection)

    def _require_whole(self, connection: Connection) -> None:
        """Compare with the newest schema what was migrated to it. Raises StoreUnusable when something is not there."""
        if lacking := schema.missing(connection):
            raise StoreUnusable(
                f"The store {self.name} lacks {', '.join(lacking)}, which schema {newest_schema()} has: something "
                "other than Rankzero changed it. Restore a copy that is whole, or start with another --data directory."
            )

    def _upgrade_postgres(self, connection: Connection) -> None:
        """Migrate in one transaction; a second dashboard that starts meanwhile waits for it."""
        try:
            connection.execute(text("set local statement_timeout = 0"))
            connection.execute(text("set local lock_timeout = 0"))
            postgres.lock_for_transaction(connection, "the store")
            self._upgrade(connection)
        except DBAPIError as error:
            raise StoreUnusable(postgres.in_words(error, self._writer.url)) from None


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


def _sqlite_engine(file: Path, patience_s: Callable[[], float], writes: bool, alone: bool) -> Engine:
    pool: dict[str, Any] = {"pool_size": 1, "max_overflow": 0} if writes else {"pool_size": 8}
    engine = create_engine(
        "sqlite://", creator=lambda: _connect_sqlite(file, alone), poolclass=QueuePool, pool_timeout=POOL_LIMIT_S,
        json_serializer=dump_json, **pool,
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver's own transaction handling would begin too late: claims must lock before they read.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys=ON")
        if writes:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
        else:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {patience_s() * 1000:.0f}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _sqlite_file(url: str) -> Path:
    return Path(make_url(url).database or "")


def _connect_sqlite(file: Path, alone: bool) -> sqlite3.Connection:
    """Connect to the file. `alone`: exclusively, without the shared index of its WAL, for which a full disk has no
    space."""
    # mode=rw never creates an empty file in place of a deleted one
    where = f"{file.as_uri()}?mode=rw{'&vfs=unix-excl' if alone else ''}"
    return sqlite3.connect(where, timeout=BUSY_TIMEOUT_S, check_same_thread=False, uri=True)


def _copy_sqlite(origin: sqlite3.Connection, target: Path) -> None:
    copy = sqlite3.connect(target)
    try:
        origin.backup(copy)
    except BaseException:
        target.unlink(missing_ok=True)  # delete a partial copy
        raise
    finally:
        copy.close()
        origin.close()
    target.chmod(0o600)


def _rename_copy(copy: Path) -> None:
    """Give the copy an identity of its own: a store started from it reuses fencing tokens."""
    connection = sqlite3.connect(copy)
    try:
        with connection:
            if connection.execute("select 1 from sqlite_master where name = 'store_identities'").fetchone():
                row = (secrets.token_hex(8), "copied", time.time())
                connection.execute("insert into store_identities (identity, origin, began_at) values (?, ?, ?)", row)
    finally:
        connection.close()


def _damaged(file: Path, verdict: str, backups: Path | None) -> str:
    copy = newest_copy(backups)
    advice = f"The last good copy is {copy}" if copy else "There is no copy of it"
    return f"The store {file} is damaged or not an SQLite database ({verdict}). {advice}; nothing was changed."


def _for_pg_dump(name: str) -> str:
    return name.replace("postgresql+psycopg://", "postgresql://", 1)
