"""SQLite files of loggers, opened for reading only."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from worker.node.run_files import walk_files

SUFFIXES = (".db", ".sqlite", ".sqlite3")


def databases(root: Path, tables: frozenset[str]) -> Iterator[Path]:
    """Yield the SQLite files at or below a path that have all of these tables."""
    entries = [] if root.is_file() else walk_files(root, is_database)
    for file in sorted([root] if root.is_file() else [Path(entry.path) for entry in entries]):
        if is_database(file.name) and tables <= tables_of(file):
            yield file


@contextmanager
def reading(file: Path, timeout_s: float = 5.0) -> Iterator[sqlite3.Connection]:
    """Open a database, whose columns are read by name; `timeout_s` is how long to wait while somebody writes."""
    address = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=timeout_s)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def digest_of_rows(rows: Iterable[sqlite3.Row]) -> str:
    """The SHA-256 of all values of the rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(tuple(row)).encode(errors="replace"))
    return digest.hexdigest()


def is_database(name: str) -> bool:
    """Whether a file of this name may be a SQLite file."""
    return name.endswith(SUFFIXES)


def tables_of(file: Path) -> frozenset[str]:
    """Return the names of the tables; none of a file that is no database, or that cannot be read now."""
    try:
        with reading(file) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return frozenset(row["name"] for row in names)
    except sqlite3.Error:  # something else with such a name
        return frozenset()
