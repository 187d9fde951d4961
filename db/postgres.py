"""PostgreSQL as the store: connections, time limits, locks by name, and sentences for connection errors."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session

from db.models.base import dump_json
from db.sqlite import close_engine
from db.trouble import StoreUnusable, Trouble


class PostgresDatabase:
    """A PostgreSQL database, where several dashboards write at once: each transaction locks what it is about."""

    file: None = None

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        self.name = without_password(parsed)
        self.writer = open_engine(parsed)
        self.readers = self.writer.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self.locks = open_engine(parsed, pool_size=1)

    def check(self, backups: Path | None) -> Trouble | None:
        """Check that the server answers. Raises StoreUnusable."""
        require_usable(self.writer)
        return None

    def require(self) -> None:
        """Do nothing: there is no file."""

    @contextmanager
    def writing(self, scopes: Sequence[str], trouble: Trouble | None) -> Iterator[Session]:
        """A transaction that has its scopes to itself, or the entire store if it names none."""
        with Session(self.writer, expire_on_commit=False) as session, session.begin():
            connection = session.connection()
            lock_for_transaction(connection, "the store", shared=bool(scopes))
            for scope in sorted(scopes):  # in one order everywhere, against deadlocks
                lock_for_transaction(connection, scope)
            yield session

    @contextmanager
    def alone(self, names: Sequence[str]) -> Iterator[None]:
        """Exclude other dashboards from sections with one of these names."""
        if not names:
            yield
            return
        with self.locks.begin() as connection:
            for name in sorted(names):
                lock_for_transaction(connection, f"alone: {name}")
            yield

    def touch(self, session: Session) -> None:
        """Do nothing: that the transaction begins is enough."""

    @contextmanager
    def migrating(self, copy: Path | None) -> Iterator[Connection]:
        """A transaction that migrates; a second dashboard that starts waits for it. Raises StoreUnusable."""
        with self.writer.begin() as connection:
            try:
                connection.execute(text("set local statement_timeout = 0"))
                connection.execute(text("set local lock_timeout = 0"))
                lock_for_transaction(connection, "the store")
                yield connection
            except DBAPIError as error:
                raise StoreUnusable(in_words(error, self.writer.url)) from None

    def backup(self, target: Path) -> None:
        """Refuse a copy. Raises StoreUnusable."""
        url = self.name.replace("postgresql+psycopg://", "postgresql://", 1)
        raise StoreUnusable(
            f"This store is on PostgreSQL, which has its own tool: pg_dump --format=custom --file=rankzero.dump '{url}'"
        )

    def close(self) -> None:
        """Close every connection."""
        for engine in (self.readers, self.writer, self.locks):
            close_engine(engine)


CONNECT_TIMEOUT_S = 10
SERVER_SETTINGS = {
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",  # a dashboard that hangs releases its locks
    "tcp_keepalives_idle": "10",  # and one whose machine is gone is noticed within half a minute
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
NUL, NUL_SHOWN = "\0", "\ufffd"
"""PostgreSQL cannot store the first character in texts; it is replaced by the second."""


def parse_url(url: str) -> URL:
    """Parse the URL in any of its usual spellings and set the driver we use. Raises StoreUnusable."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreUnusable(
            "RANKZERO_DATABASE_URL is not a database URL: use postgresql+psycopg://USER@HOST/DATABASE"
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername != "postgresql+psycopg":
        raise StoreUnusable(
            f"The store cannot be {parsed.drivername}: use postgresql+psycopg://USER@HOST/DATABASE, "
            "or unset RANKZERO_DATABASE_URL to use an SQLite file."
        )
    return parsed


def without_password(url: URL) -> str:
    """The URL without its password, for pages and logs."""
    socket = {} if url.host or "host" not in url.query else {"host": url.query["host"]}
    shown = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, socket)
    return shown.render_as_string()


def open_engine(url: URL, pool_size: int = 8, max_overflow: int = 8) -> Engine:
    """An engine that checks connections before use, so that it survives a restart of the server.

    Raises StoreUnusable when the driver is missing."""
    try:
        engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_timeout=60,
            pool_pre_ping=True,
            json_serializer=dump_json,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "tcp_user_timeout": 20_000,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 2,
                "application_name": url.query.get("application_name", "rankzero"),
            },
        )
    except ModuleNotFoundError:
        raise StoreUnusable(f"PostgreSQL needs its driver: {sys.executable} -m pip install 'psycopg[binary]'") from None
    event.listen(engine, "connect", _prepare, insert=True)  # before SQLAlchemy asks the server about itself
    return engine


def require_usable(engine: Engine) -> str:
    """The server's version. Raises StoreUnusable."""
    try:
        with engine.connect() as connection:
            return str(connection.scalar(text("show server_version")))
    except DBAPIError as error:
        raise StoreUnusable(in_words(error, engine.url)) from None


def look_at(url: str) -> tuple[str, str]:
    """A database's URL without the password, and its server's version. Raises StoreUnusable."""
    parsed = parse_url(url)
    engine = open_engine(parsed, pool_size=1)
    try:
        return without_password(parsed), require_usable(engine)
    finally:
        engine.dispose()


def in_words(error: DBAPIError, url: URL) -> str:
    """A sentence that says why there is no connection and what to do, without the password."""
    where, driver_message = without_password(url), str(error.orig).strip()
    cause = _cause(driver_message) or type(error.orig).__name__
    if "password" in driver_message and (
        "authentication failed" in driver_message or "no password supplied" in driver_message
    ):
        return (
            f"PostgreSQL refuses the login at {where}: {cause}. Set the password in PGPASSWORD, "
            "in ~/.pgpass, or in RANKZERO_DATABASE_URL."
        )
    if "database" in driver_message and "does not exist" in driver_message:
        return f"There is no such database: {where} ({cause}). Create it with: createdb {url.database}"
    if "role" in driver_message and "does not exist" in driver_message:
        return f"PostgreSQL does not know the user of {where} ({cause}). Create it with: createuser {url.username}"
    if "permission denied" in driver_message:
        return f"The user of {where} may not create tables there ({cause}). Make it the owner of the database."
    return f"PostgreSQL cannot be reached at {where}: {cause}. Check that it is running there and accepts connections."


def lock_for_transaction(connection: Connection, name: str, shared: bool = False) -> None:
    """Wait for the lock of this name (exclusive or `shared`) and hold it until the transaction ends."""
    function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    connection.execute(text(f"select {function}(:key)"), {"key": lock_key(name)})


def lock_key(name: str) -> int:
    """The key of PostgreSQL's advisory lock for a name."""
    digest = hashlib.sha256(f"rankzero {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _cause(driver_message: str) -> str:
    """The relevant line of libpq's message."""
    causes = [
        line for line in driver_message.splitlines() if "FATAL:" in line or "failed:" in line
    ] or driver_message.splitlines()
    if not causes:
        return ""
    return causes[-1].rpartition("FATAL:")[2].removeprefix("connection failed:").strip().rstrip(".")


def _prepare(connection: Any, _record: object) -> None:
    from psycopg.types.string import StrDumperUnknown

    if (encoding := connection.info.parameter_status("server_encoding")) != "UTF8":
        raise StoreUnusable(
            f"The database {connection.info.dbname} is encoded as {encoding}; Rankzero needs UTF8: "
            "createdb --template=template0 --encoding=UTF8 NAME"
        )

    class NulFree(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace(NUL, NUL_SHOWN) if NUL in obj else obj)

    connection.adapters.register_dumper(str, NulFree)
    for name, value in SERVER_SETTINGS.items():
        connection.execute("select set_config(%s, %s, false)", (name, value))
    connection.commit()
