"""A store that takes nothing for a while, in a test."""

from __future__ import annotations

from db.engine import Store


def make_read_only(store: Store, read_only: bool) -> None:
    """From SQLite's own mouth: the one writer connection may write, or not."""
    with store.database.turn_lock:
        connection = store.database.writer.raw_connection()
        connection.cursor().execute(f"PRAGMA query_only = {read_only:d}")
        connection.close()
