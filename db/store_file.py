"""The file of an SQLite store: never created by accident, and noticed when it is deleted or replaced."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("rankzero")


class StoreUnusable(Exception):
    """The store cannot be opened; the sentence says why and what to do."""


class StoreMissing(StoreUnusable):
    """There is no store, or an empty database, where one is expected."""


class StoreGone(StoreUnusable):
    """The store's file was deleted or replaced while it was open."""


class StoreFile:
    """An open store file, and the rescue of its content when the file is deleted or replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backups: Path | None = None
        self._opened = _identity(path)
        self._lock = threading.Lock()
        self._sentence = ""

    def require(self, save: Callable[[Path], None]) -> None:
        """Check that the opened file is still in place. Raises StoreGone; the content is saved once, by `save`."""
        if _identity(self.path) == self._opened:
            return
        with self._lock:
            self._sentence = self._sentence or self._lose(save)
        raise StoreGone(self._sentence)

    def _lose(self, save: Callable[[Path], None]) -> str:
        event = "replaced by another one" if self.path.exists() else "deleted or moved away"
        message = f"The store {self.path} was {event} while the dashboard had it open; nothing is stored any more."
        copy = self._saved(save)
        if copy is not None:
            message += (
                f" Its content is saved in {copy}: stop the dashboard, copy that file to {self.path} "
                "(and remove the files beside it that end in -wal and -shm), and start again."
            )
        else:
            message += f" {_restore(self.path, newest_copy(self.backups))}"
        message += " Training continues; the workers keep new data."
        log.error("%s", message)
        return message

    def _saved(self, save: Callable[[Path], None]) -> Path | None:
        """Save the content of the open file, which outlives its name; return the copy, or None when that fails."""
        if self.backups is None:
            return None
        copy = self.backups / f"rescued-{time.strftime('%Y%m%d-%H%M%S')}.db"
        try:
            self.backups.mkdir(mode=0o700, parents=True, exist_ok=True)
            save(copy)
            return copy if _is_whole(copy) else None
        except (OSError, sqlite3.Error) as error:
            log.error("the content of the deleted store could not be saved: %s", error)
            return None


def make_file(path: Path) -> None:
    """Create an empty file for a new store; connections themselves never create one."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def newest_copy(backups: Path | None) -> Path | None:
    """The newest copy of the store in `backups`; None when there is none."""
    copies = sorted(backups.glob("*.db"), key=lambda p: p.stat().st_mtime) if backups else []
    return copies[-1] if copies else None


def missing(path: Path | str, beside: Path, copy: Path | None) -> str:
    """Why a dashboard does not start with an empty store, and what to do."""
    return (
        f"There is no store at {path}, but {beside} contains the token and the files of one: it was "
        "deleted, or a disk is "
        f"not mounted. {_restore(path, copy)} To start with an empty store on purpose, start once with --new-store."
    )


def _restore(path: Path | str, copy: Path | None) -> str:
    if copy is None:
        return f"There is no copy of it in backups: put your own backup at {path}."
    copied_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(copy.stat().st_mtime))
    return f"The newest copy is {copy}, of {copied_at}: copy it to {path}."


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _is_whole(copy: Path) -> bool:
    connection = sqlite3.connect(copy)
    try:
        return bool(connection.execute("pragma quick_check(1)").fetchone() == ("ok",))
    finally:
        connection.close()
