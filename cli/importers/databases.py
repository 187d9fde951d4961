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
    entries = [] if root.is_file() else walk_files(root, _is_database)
    for file in sorted([root] if root.is_file() else [Path(entry.path) for entry in entries]):
        if _is_database(file.name) and tables <= _tables(file):
            yield file


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a database; its columns are read by name."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def digest_of_rows(rows: Iterable[sqlite3.Row]) -> str:
    """The SHA-256 of all values of the rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(tuple(row)).encode(errors="replace"))
    return digest.hexdigest()


def _is_database(name: str) -> bool:
    return name.endswith(SUFFIXES)


def _tables(file: Path) -> frozenset[str]:
    try:
        with reading(file) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return frozenset(row["name"] for row in names)
    except sqlite3.Error:  # something else with such a name
        return frozenset()
