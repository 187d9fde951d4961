"""What the dashboards on one PostgreSQL store tell each other at once, and which of them leads."""

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

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("rankzero")
NAME = "rankzero"
LARGEST_MESSAGE_BYTES = 7900
"""PostgreSQL takes 7,999."""
LISTEN_S = 0.5
RECONNECT_S = 1.0


class Channel:
    """Short messages to every dashboard on the store, this one included; none is kept for later."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopped = threading.Event()
        self.leads = False
        """Is this dashboard the one that writes down what all of them see?"""

    def send(self, message: str) -> None:
        """Tell everybody who listens now."""
        with self._store.locks.begin() as connection:
            connection.execute(text("select pg_notify(:name, :said)"), {"name": NAME, "said": message})

    def listen(self, heard: Callable[[str], None], connected: Callable[[], None]) -> None:
        """Pass on what is said, until `stop`; `connected` is called whenever something may have been missed."""
        is_lost = False
        while not self._stopped.is_set():
            try:
                with self._connection() as connection:
                    connection.execute(f"listen {NAME}")
                    connected()
                    if is_lost:
                        log.info("the other dashboards are heard again")
                    is_lost = False
                    self._hear(connection, heard)
            except _broken() as error:
                if not is_lost and not self._stopped.is_set():
                    log.warning("the other dashboards cannot be heard: %s", str(error).strip())
                is_lost = True
                self._stopped.wait(RECONNECT_S)
            finally:
                self.leads = False

    def stop(self) -> None:
        """Let `listen` return soon."""
        self._stopped.set()

    def _hear(self, connection: psycopg.Connection[Any], heard: Callable[[str], None]) -> None:
        while not self._stopped.is_set():
            if not self.leads:
                asked = connection.execute("select pg_try_advisory_lock(%s)", [lock_key("leads")])
                self.leads = bool((asked.fetchone() or [False])[0])
            for notice in connection.notifies(timeout=LISTEN_S):
                heard(notice.payload)

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """One of our own, which no pool takes back: it holds what makes this dashboard lead."""
        pooled = self._store.locks.raw_connection()
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
