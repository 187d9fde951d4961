"""Note the statements that a test's store makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event

from db.engine import Store


@contextmanager
def statements(store: Store) -> Iterator[list[tuple[str, tuple[object, ...]]]]:
    """The queries with their values that readers make meanwhile."""
    made: list[tuple[str, tuple[object, ...]]] = []

    def note(_connection: object, _cursor: object, statement: str, values: tuple[object, ...], *_: object) -> None:
        if statement.startswith("SELECT"):
            made.append((statement, values))

    event.listen(store.database.readers, "before_cursor_execute", note)
    try:
        yield made
    finally:
        event.remove(store.database.readers, "before_cursor_execute", note)
