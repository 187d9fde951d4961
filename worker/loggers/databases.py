"""SQLite files of loggers, opened for reading only."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from worker.node.regular_files import open_regular

MAGIC = b"SQLite format 3\0"
SUFFIXES = (".db", ".sqlite", ".sqlite3")


@contextmanager
def reading(file: Path, timeout_s: float = 5.0) -> Iterator[sqlite3.Connection]:
    """Open a database, whose columns are read by name; `timeout_s` is how long to wait for a writer.

    Raises sqlite3.Error, also where SQLite quotes a damaged schema in an error that Python cannot decode."""
    _check_regular(file)
    address = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=timeout_s)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda data: data.decode(errors="replace")
        try:
            yield connection
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("its schema is damaged") from error


def _check_regular(file: Path) -> None:
    """SQLite would wait for the writer of a pipe."""
    try:
        open_regular(file).close()
    except OSError as error:
        raise sqlite3.OperationalError(f"unable to open database file: {error.strerror}") from error


def digest_of_rows(rows: Iterable[sqlite3.Row]) -> str:
    """The SHA-256 of all values of the rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(tuple(row)).encode(errors="replace"))
    return digest.hexdigest()


def is_database(name: str) -> bool:
    """Whether a file of this name may be a SQLite file."""
    return name.endswith(SUFFIXES)


def is_sqlite(file: Path) -> bool:
    """Whether a file begins as SQLite's do. Raises OSError."""
    with open_regular(file) as content:
        return content.read(len(MAGIC)) == MAGIC


def table_names(file: Path) -> frozenset[str]:
    """Return the names of the tables. Raises sqlite3.Error."""
    with reading(file) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return frozenset(row["name"] for row in names)


def tables_of(file: Path) -> frozenset[str]:
    """Return the names of the tables; none of a file that is no database, or that cannot be read now."""
    try:
        return table_names(file)
    except sqlite3.Error:  # something else with such a name
        return frozenset()
