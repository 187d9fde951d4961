"""SQLite as the store: one file with one writer, never created by accident, missed when it is deleted or replaced."""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from db.models.base import dump_json
from db.trouble import StoreBusy, StoreGone, StoreMissing, StoreUnusable, Trouble, trouble_of
from domain.clock import SYSTEM_CLOCK
from domain.network.file_systems import NETWORK, type_at


class SqliteDatabase:
    """An SQLite file: exactly one connection writes, and does every WAL checkpoint.

    SQLite before 3.51.3 can corrupt the file otherwise."""

    writer: Engine
    readers: Engine
    locks: Engine

    def __init__(self, url: str, *, may_be_new: bool = True) -> None:
        """Open the file, or create an empty one. Raises StoreMissing when there is none and it may not be new."""
        self.name = url
        self.file = Path(make_url(url).database or "").absolute()
        if not may_be_new and not self.file.exists():
            raise StoreMissing(url)
        make_file(self.file)
        self._opened: StoreFile | None = None
        self.turn_lock = threading.RLock()
        """Held by the one that writes."""
        self._busy_s = TURN_LIMIT_S
        self.network = network_of(self.file)
        """The type of the network file system that the file is on; "" on a local disk."""
        self._open(alone=bool(self.network))

    def _open(self, alone: bool) -> None:
        self._is_alone = alone
        self.writer = _engine(self.file, lambda: self._busy_s, writes=True, alone=alone)
        self.readers = _engine(self.file, lambda: BUSY_TIMEOUT_S, writes=False, alone=alone)
        self.locks = self.writer

    def check(self, backups: Path | None) -> Trouble | None:
        """Check that the file is intact, and stays in place from now on; return the trouble with which it was opened.

        Raises StoreUnusable."""
        if self.network:
            log.warning("%s", ON_NETWORK.format(file=self.file, network=self.network))
        trouble = self._open_on_full_disk()
        try:
            with self.readers.begin() as connection:
                verdict = connection.execute(text("PRAGMA quick_check(1)")).scalar()
        except DatabaseError as error:
            if trouble_of(error, self.file) is not None:
                raise
            verdict = str(error.orig)
        if verdict != "ok":
            raise StoreUnusable(_damaged(self.file, str(verdict), backups))
        self._opened = StoreFile(self.file, backups)
        return trouble

    def _open_on_full_disk(self) -> Trouble | None:
        """Open in exclusive mode when the disk is full: SQLite then needs no shared-memory file for the WAL's index."""
        try:
            with self.readers.begin() as connection:
                connection.execute(text("select count(*) from sqlite_master"))
        except DatabaseError as error:
            if trouble_of(error, self.file) is Trouble.FULL:
                self.close()
                self._open(alone=True)
                return Trouble.FULL
        return None

    def require(self) -> None:
        """Check that the file is still in place. Raises StoreGone."""
        if self._opened is not None:
            self._opened.require(self._save)

    def _save(self, target: Path) -> None:
        """Copy the open database, even if its file was deleted or replaced."""
        with self.turn_lock:
            open_one = self.writer.raw_connection()
            make_file(target)
            copy = sqlite3.connect(target)
            try:
                cast(sqlite3.Connection, open_one.driver_connection).backup(copy)
            finally:
                copy.close()
                open_one.close()

    @contextmanager
    def writing(self, scopes: Sequence[str], trouble: Trouble | None) -> Iterator[Session]:
        """A transaction that writes, one at a time. Raises StoreBusy."""
        with self._turn(trouble), Session(self.writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def _turn(self, trouble: Trouble | None) -> Iterator[None]:
        """Let one writer in at a time. Raises StoreBusy after a time limit."""
        limit_s = LOCKED_LIMIT_S if trouble is Trouble.LOCKED else TURN_LIMIT_S
        began = SYSTEM_CLOCK.now()
        if not self.turn_lock.acquire(timeout=limit_s):
            raise StoreBusy(f"no write lock within {limit_s:.0f} s")
        try:
            self._busy_s = max(0.05, limit_s - (SYSTEM_CLOCK.now() - began))
            yield
        finally:
            self.turn_lock.release()

    def alone(self, names: Sequence[str]) -> nullcontext[None]:
        """Do nothing: there is one dashboard."""
        return nullcontext()

    def touch(self, session: Session) -> None:
        """Write something that changes nothing but reaches the disk."""
        version = session.execute(text("PRAGMA user_version")).scalar()
        session.execute(text(f"PRAGMA user_version = {version}"))

    @contextmanager
    def migrating(self, copy: Path | None) -> Iterator[Connection]:
        """A transaction that migrates, after the file was copied."""
        if copy is not None:
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.backup(copy)
        with self.writer.begin() as connection:
            yield connection

    def backup(self, target: Path) -> None:
        """Write a consistent copy to `target`, also under load."""
        _copy(_connect(self.file, self._is_alone), target)
        _rename_copy(target)

    def close(self) -> None:
        """Close every connection."""
        for engine in (self.readers, self.writer):
            close_engine(engine)


log = logging.getLogger("rankzero")
BUSY_TIMEOUT_S = 15
"""How long a read waits for a foreign program that has locked the file."""
TURN_LIMIT_S = 25.0
"""How long a write waits for earlier writes and for foreign programs; shorter than clients' timeouts of 30 s."""
POOL_LIMIT_S = 10
"""How long a read waits for a connection."""
LOCKED_LIMIT_S = 1.0
"""How long a write waits once a foreign program is known to hold the lock, so that no queue builds up."""


ON_NETWORK = (
    "The store {file} is on {network}, where programs of several machines would damage it: it is opened for one "
    "program alone. Put --data on a local disk; RANKZERO_FILES may stay on the share."
)
MOUNTS = Path("/proc/self/mounts")


def network_of(file: Path) -> str:
    """Return the type of the network file system that a file is on; "" on a local disk, and where that is unknown."""
    try:
        mounts = [line.split(" ") for line in MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    kind = type_at(file.resolve(), {mount[1].replace("\\040", " "): mount[2] for mount in mounts})
    return kind if kind in NETWORK else ""


def close_engine(engine: Engine) -> None:
    """Close every connection; one that is still in use is closed when it is returned."""
    used = engine.pool
    engine.dispose()
    event.listen(used, "checkin", lambda connection, entry: entry.invalidate())


class StoreFile:
    """An open store file, and the rescue of its content when the file is deleted or replaced."""

    def __init__(self, path: Path, backups: Path | None) -> None:
        self.path = path
        self.backups = backups
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
        return f"There is no copy of it in backups: put your own at {path}, or run rankzero restore DIR elsewhere."
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


def _engine(file: Path, patience_s: Callable[[], float], writes: bool, alone: bool) -> Engine:
    pool: dict[str, Any] = {"pool_size": 1, "max_overflow": 0} if writes else {"pool_size": 8}
    engine = create_engine(
        "sqlite://", creator=lambda: _connect(file, alone), poolclass=QueuePool, pool_timeout=POOL_LIMIT_S,
        json_serializer=dump_json, **pool,
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # The driver's own transaction handling would begin too late: claims must lock before they read.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys=ON")
        if writes:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
        else:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        own = connection.connection.driver_connection
        if writes:
            own.execute(f"PRAGMA busy_timeout = {patience_s() * 1000:.0f}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:  # it waits for no lock; as a statement of SQLAlchemy it took a quarter of a short read's time
            own.execute("BEGIN")

    return engine


def _connect(file: Path, alone: bool) -> sqlite3.Connection:
    """Connect to the file. `alone`: exclusively, without the shared index of its WAL, for which a full disk has no
    space."""
    # mode=rw never creates an empty file in place of a deleted one
    where = f"{file.as_uri()}?mode=rw{'&vfs=unix-excl' if alone else ''}"
    return sqlite3.connect(where, timeout=BUSY_TIMEOUT_S, check_same_thread=False, uri=True)


def _copy(origin: sqlite3.Connection, target: Path) -> None:
    make_file(target)  # for its owner alone from the first byte on
    copy = sqlite3.connect(target)
    try:
        origin.backup(copy)
    except BaseException:
        target.unlink(missing_ok=True)  # delete a partial copy
        raise
    finally:
        copy.close()
        origin.close()


def _rename_copy(copy: Path) -> None:
    """Give the copy an identity of its own: a store started from it reuses fencing tokens."""
    connection = sqlite3.connect(copy)
    try:
        with connection:
            if connection.execute("select 1 from sqlite_master where name = 'store_identities'").fetchone():
                row = (secrets.token_hex(8), "copied", SYSTEM_CLOCK.wall())
                connection.execute("insert into store_identities (identity, origin, began_at) values (?, ?, ?)", row)
    finally:
        connection.close()


def _damaged(file: Path, verdict: str, backups: Path | None) -> str:
    copy = newest_copy(backups)
    advice = f"The last good copy is {copy}" if copy else "There is no copy of it in backups"
    return (
        f"The store {file} is damaged or not an SQLite database ({verdict}). {advice}; nothing was changed. To go back "
        f"to a backup, move {file.parent} away and run: rankzero restore DIR"
    )
