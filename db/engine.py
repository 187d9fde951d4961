"""The open store: one writer, many readers, migrations at start."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

BUSY_TIMEOUT_S = 30
"""How long a write waits for a foreign program that has locked the file."""


class StoreUnusable(Exception):
    """The store cannot be opened; the sentence says why and what to do."""


class Store:
    """All access to the database. SQLite takes one writer at a time, so here there is exactly one writer
    connection, which also does every WAL checkpoint (SQLite before 3.51.3 can corrupt the file otherwise)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        self._write_lock = threading.RLock()
        self._writer = _engine(url, writes=True)
        self._readers = _engine(url, writes=False) if self.is_sqlite else self._writer

    @classmethod
    def open(cls, where: str | Path, backups: Path | None = None) -> Self:
        """Open a file or URL and bring its tables up to date; a copy is kept in `backups` before each change.

        Raises StoreUnusable when the file is damaged or of a newer version."""
        url = str(where) if "://" in str(where) else f"sqlite:///{where}"
        store = cls(url)
        try:
            store._check_integrity(backups)
            store._migrate(backups)
        except BaseException:
            store.close()
            raise
        return store

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction that may write: everything in it is stored, or nothing."""
        with self._write_lock, Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One consistent look at the store."""
        with Session(self._readers, expire_on_commit=False) as session, session.begin():
            yield session

    def backup(self, target: Path) -> int:
        """Write a consistent copy of an SQLite store to `target`, also under load; returns its bytes."""
        if not self.is_sqlite:
            raise StoreUnusable("Backups of a PostgreSQL store are made with pg_dump.")
        _copy_sqlite(_sqlite_file(self.url), target)
        return target.stat().st_size

    def close(self) -> None:
        """Close every connection."""
        self._readers.dispose()
        self._writer.dispose()

    def _check_integrity(self, backups: Path | None) -> None:
        if not self.is_sqlite or not _sqlite_file(self.url).exists():
            return
        try:
            with self.read() as session:
                verdict = session.execute(text("PRAGMA quick_check(1)")).scalar()
        except DatabaseError as error:
            verdict = str(error.orig)
        if verdict != "ok":
            raise StoreUnusable(_damaged(_sqlite_file(self.url), str(verdict), backups))

    def _migrate(self, backups: Path | None) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        scripts = ScriptDirectory.from_config(config)
        with self._writer.connect() as connection:
            current = MigrationContext.configure(connection).get_current_revision()
        if current == scripts.get_current_head():
            return
        if current is not None and current not in {s.revision for s in scripts.walk_revisions()}:
            raise StoreUnusable(
                f"The store {self.url} was written by a newer Rankzero (schema {current}). "
                "Install that version again, or start with another --data directory."
            )
        if current is not None and backups is not None and self.is_sqlite:
            backups.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.backup(backups / f"before-{scripts.get_current_head()}-{int(time.time())}.db")
        with self._write_lock, self._writer.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def _engine(url: str, writes: bool) -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url)
    pool: dict[str, Any] = {"pool_size": 1, "max_overflow": 0} if writes else {"pool_size": 8}
    engine = create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}, pool_timeout=60, **pool
    )

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
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _sqlite_file(url: str) -> Path:
    return Path(make_url(url).database or "")


def _copy_sqlite(source: Path, target: Path) -> None:
    origin, copy = sqlite3.connect(source, timeout=BUSY_TIMEOUT_S), sqlite3.connect(target)
    try:
        origin.backup(copy)
    finally:
        copy.close()
        origin.close()
    target.chmod(0o600)


def _damaged(file: Path, verdict: str, backups: Path | None) -> str:
    copies = sorted(backups.glob("*.db"), key=lambda p: p.stat().st_mtime) if backups else []
    advice = f"The last good copy is {copies[-1]}" if copies else "No copy of it is known"
    return (
        f"The store {file} is damaged or not an SQLite database ({verdict}). {advice}; nothing was changed."
    )
