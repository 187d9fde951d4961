"""Messages between the dashboards on one PostgreSQL store, and the election of the one that leads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from db.engine import Store
from db.postgres import lock_key
from db.trouble import Trouble

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("rankzero")
NAME = "rankzero"
LARGEST_MESSAGE_BYTES = 7900
"""PostgreSQL takes 7,999."""
LISTEN_S = 0.5
RECONNECT_S = 1.0


class Channel:
    """Short messages to every connected dashboard on the store, including this one; they are not stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopped = threading.Event()
        self.leads = False
        """Whether this dashboard is the one that stores what all of them observe."""

    def send(self, message: str) -> None:
        """Send a message to all listeners."""
        with self._store.database.locks.begin() as connection:
            connection.execute(text("select pg_notify(:name, :said)"), {"name": NAME, "said": message})

    def listen(self, receive: Callable[[str], None], connected: Callable[[], None]) -> None:
        """Pass messages to `receive` until `stop`; call `connected` whenever messages may have been missed."""
        is_lost = False
        while not self._stopped.is_set():
            try:
                with self._connection() as connection:
                    connection.execute(f"listen {NAME}")
                    connected()
                    if is_lost:
                        log.info("the other dashboards can be heard again")
                    is_lost = False
                    self._hear(connection, receive)
            except _broken() as error:
                if self._stopped.is_set():
                    return
                if self._store.note(error) is not Trouble.AWAY:  # of which the store has told
                    if not is_lost:
                        log.warning("the other dashboards cannot be heard: %s", str(error).strip())
                    is_lost = True
                self._stopped.wait(RECONNECT_S)
            finally:
                self.leads = False

    def stop(self) -> None:
        """Make `listen` return soon."""
        self._stopped.set()

    def _hear(self, connection: psycopg.Connection[Any], receive: Callable[[str], None]) -> None:
        while not self._stopped.is_set():
            if not self.leads:
                result = connection.execute("select pg_try_advisory_lock(%s)", [lock_key("leads")])
                self.leads = bool((result.fetchone() or [False])[0])
            for notice in connection.notifies(timeout=LISTEN_S):
                receive(notice.payload)

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection outside the pool: it holds the lock of the leading dashboard."""
        pooled = self._store.database.locks.raw_connection()
        connection: psycopg.Connection[Any] = pooled.driver_connection  # type: ignore[assignment]
        pooled.detach()
        try:
            connection.autocommit = True
            yield connection
        finally:
            connection.close()


def _broken() -> tuple[type[Exception], ...]:
    import psycopg

    return (psycopg.Error, SQLAlchemyError)
