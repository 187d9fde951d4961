"""A new store without the work of its migrations: a copy of one that was migrated once."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import delete

from db.engine import Store
from db.models import StoreIdentity


def new_store(path: Path) -> Path:
    """Put a migrated store without any row there; returns the path."""
    return Path(shutil.copy(_template(), path))


def new_data(data: Path) -> Path:
    """Make a data directory with such a store, unless there is one; returns the directory."""
    if not data.exists():
        data.mkdir(mode=0o700, parents=True)
        new_store(data / "rankzero.db")
    return data


@cache
def folder_of_templates() -> Path:
    """Where the stores are that others are copies of; one folder in each process."""
    folder = Path(tempfile.mkdtemp(prefix="rankzero-template-"))
    atexit.register(shutil.rmtree, folder)
    return folder


def without_identity(store: Store) -> None:
    """Close a store so that each copy of its file becomes a store of its own when it is opened."""
    with store.write() as session:
        session.execute(delete(StoreIdentity))
    store.close()


@cache
def _template() -> Path:
    without_identity(Store.open(folder_of_templates() / "rankzero.db"))
    return folder_of_templates() / "rankzero.db"
