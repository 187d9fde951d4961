"""SQLite files that loggers wrote, which may be in use, damaged, or something else's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from cli.importers.past_run import LeftOut, reason_of
from worker.loggers.databases import is_database, is_sqlite, reading, table_names

LOCKED = "It is in use: another program kept it locked for some seconds. Import it again when that program has ended."


def databases(root: Path, tables: frozenset[str], left_out: LeftOut) -> Iterator[Path]:
    """Yield the SQLite files at or below a path that have all of these tables; what cannot be read is noted."""
    for file in [root] if root.is_file() else sorted(left_out.walk(root, is_database)):
        if is_database(file.name) and file not in left_out and tables <= _tables_of(file, left_out):
            _check(file, left_out)
            yield file


def _check(file: Path, left_out: LeftOut) -> None:
    """Note damage that SQLite finds only when it is asked: rows may be missing without an error."""
    try:
        with reading(file) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        verdict = reason_of(error)
    if verdict != "ok":
        left_out.add(file, f"It is damaged ({' '.join(verdict.split())}): rows may be missing.")


def _tables_of(file: Path, left_out: LeftOut) -> frozenset[str]:
    try:
        return table_names(file) if is_sqlite(file) else frozenset()
    except (sqlite3.Error, OSError) as error:
        left_out.add(file, sentence(error))
        return frozenset()


def rows_of(rows: Iterator[sqlite3.Row], file: Path, left_out: LeftOut) -> Iterator[sqlite3.Row]:
    """Yield the rows up to the first one that cannot be read."""
    try:
        yield from rows
    except sqlite3.Error as error:
        left_out.add(file, f"{sentence(error)} The rows from there on are missing.")


def sentence(error: Exception) -> str:
    """Say why a database cannot be read."""
    is_locked = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return LOCKED if is_locked else f"It cannot be read ({reason_of(error)})."
