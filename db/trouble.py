"""Why a store cannot be used: for a while, recognized from its driver's errors, or permanently."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from enum import StrEnum
from pathlib import Path

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

ROOM_BYTES = 1024 * 1024
"""A disk with less free space than this counts as full."""


class Trouble(StrEnum):
    """A passing condition of the store, with the sentence that people read."""

    FULL = "The server's disk is full. Free some space there; nothing is lost, and sending resumes automatically."
    READ_ONLY = (
        "The server's store is read-only: its file or its disk cannot be written. Make it writable "
        "again; nothing is lost, and everything resumes automatically."
    )
    AWAY = (
        "The store's database (PostgreSQL) cannot be reached. Check that it runs and accepts connections; "
        "nothing is lost, and everything resumes automatically."
    )
    LOCKED = (
        "The server's store is locked by another program (a backup, a sqlite3 shell). End that program; "
        "nothing is lost, and everything resumes automatically."
    )
    BROKEN = (
        "Writing to the server's disk fails (input/output error). Check the disk and its limits on "
        "file sizes; nothing is lost, and everything resumes automatically."
    )


class StoreBusy(PoolTimeout):
    """The write could not begin within the time limit of a request."""


class StoreUnusable(Exception):
    """The store cannot be opened; the sentence says why and what to do."""


class StoreMissing(StoreUnusable):
    """There is no store, or an empty database, where one is expected."""


class StoreGone(StoreUnusable):
    """The store's file was deleted or replaced while it was open."""


_BY_NAME = {
    "SQLITE_FULL": Trouble.FULL,
    "SQLITE_READONLY": Trouble.READ_ONLY,
    "SQLITE_BUSY": Trouble.LOCKED,
    "SQLITE_LOCKED": Trouble.LOCKED,
    "SQLITE_IOERR": Trouble.BROKEN,
    "SQLITE_CANTOPEN": Trouble.BROKEN,
}
_BY_NUMBER = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), Trouble.FULL),
    errno.EROFS: Trouble.READ_ONLY,
    errno.EIO: Trouble.BROKEN,
}
_CONNECTION_ENDED = ("08", "57P01", "57P02", "57P03")
"""Beginnings of PostgreSQL's codes for a broken connection, and for a server that ends or starts."""
_BY_POSTGRES = {"53100": Trouble.FULL, "25006": Trouble.READ_ONLY, "55P03": Trouble.LOCKED}


def trouble_of(error: BaseException, file: Path | None = None) -> Trouble | None:
    """The trouble that an error indicates; None when it has another cause. `file`: the SQLite store's file."""
    if isinstance(error, PoolTimeout):
        return Trouble.LOCKED if file else None
    if isinstance(error, OSError):
        return Trouble.READ_ONLY if _is_forbidden(error, file) else _BY_NUMBER.get(error.errno or 0)
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, sqlite3.Error):
        return Trouble.AWAY if _is_away(error, cause) else _BY_POSTGRES.get(_sqlstate(cause))
    name = getattr(cause, "sqlite_errorname", "")
    trouble = next((trouble for prefix, trouble in _BY_NAME.items() if name.startswith(prefix)), None)
    return Trouble.FULL if trouble is Trouble.BROKEN and file and not has_room(file.parent) else trouble


def _is_forbidden(error: OSError, file: Path | None) -> bool:
    """Whether this user may not write beside the store; elsewhere, in people's folders, that is their matter."""
    is_beside = file is not None and file.parent in Path(str(error.filename or "")).parents
    return isinstance(error, PermissionError) and is_beside


def _is_away(error: BaseException, cause: BaseException | None) -> bool:
    """Whether the error is that of a connection to PostgreSQL: only these have no code of the server's."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    is_operational = type(cause).__name__ == "OperationalError" and type(cause).__module__.startswith("psycopg")
    code = _sqlstate(cause)
    return code.startswith(_CONNECTION_ENDED) or (is_operational and not code)


def _sqlstate(cause: BaseException | None) -> str:
    return getattr(cause, "sqlstate", None) or ""


def has_room(folder: Path) -> bool:
    """Whether the folder's disk has space for small writes."""
    try:
        return shutil.disk_usage(folder).free >= ROOM_BYTES
    except OSError:
        return True
