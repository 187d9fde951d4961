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
def _template() -> Path:
    """The store that the others are copies of; one in each process."""
    folder = Path(tempfile.mkdtemp(prefix="rankzero-template-"))
    atexit.register(shutil.rmtree, folder)
    store = Store.open(folder / "rankzero.db")
    with store.write() as session:
        session.execute(delete(StoreIdentity))
    store.close()
    return folder / "rankzero.db"
