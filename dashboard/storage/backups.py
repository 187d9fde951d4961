"""Copies of the store that people ask for: new files of the folder `backups` alone, which no route hands out."""

from __future__ import annotations

import errno
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from dashboard.errors import Rejection
from dashboard.private_files import make_private_directory
from db.engine import Store
from db.people import audit
from domain.people.audit import AuditAction

BackupName = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.db$")]
"""A file name without a folder; no name of a file that SQLite keeps beside a database."""


def backup_name(now: float) -> str:
    """Return the name of a backup made now, in seconds since the epoch."""
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    return f"rankzero-{moment}-{secrets.token_hex(3)}.db"


def write_backup(store: Store, data: Path, name: str) -> tuple[Path, int]:
    """Write a consistent copy of the store to `backups/NAME`, and that into the audit log; return path and bytes.

    Raises Rejection where that file exists or the folder is a link, StoreUnusable, OSError."""
    target = _new_file(data.resolve() / "backups", name)
    try:
        size_bytes = store.backup(target)
        audit.record(store, AuditAction.BACKUP, str(target), more={"size_bytes": size_bytes})
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target, size_bytes


def _new_file(folder: Path, name: str) -> Path:
    """Make an empty file that only its owner may read, in the folder itself and not where a link leads."""
    make_private_directory(folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise Rejection(409, f"{folder} is a link, and backups follow none: make it a folder of its own.") from None
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=descriptor))
    except FileExistsError:
        raise Rejection(409, f"backups/{name} exists already: choose another name.", "name") from None
    finally:
        os.close(descriptor)
    return folder / name
