"""Opens the store that the data directory had before; never silently an empty one."""

from __future__ import annotations

import logging
import time

from dashboard.settings import Settings
from db.engine import Store
from db.postgres import parse_url, without_password
from db.sqlite import missing, newest_copy
from db.trouble import StoreMissing, StoreUnusable

log = logging.getLogger("rankzero")


def open_store(settings: Settings, *, new_store: bool = False) -> Store:
    """Open the store; create one if there never was one, or on request. Raises StoreUnusable."""
    backups = settings.data / "backups"
    where = settings.database_url or str(settings.data / "rankzero.db")
    try:
        return Store.open(where, backups, may_be_new=not had_store(settings))
    except StoreMissing:
        if not new_store:
            raise StoreUnusable(_missing(settings)) from None
    _set_files_aside(settings)
    return Store.open(where, backups)


def had_store(settings: Settings) -> bool:
    """Whether a dashboard has served from this directory: it creates its token and files after the store."""
    return (settings.data / "token").exists() and settings.files_directory.exists()


def _missing(settings: Settings) -> str:
    if settings.database_url is None:
        return missing(settings.data / "rankzero.db", settings.data, newest_copy(settings.data / "backups"))
    return missing(without_password(parse_url(settings.database_url)), settings.data, None)


def _set_files_aside(settings: Settings) -> None:
    """Rename the folder of files: their names are ids of rows, which a new store assigns again."""
    files = settings.files_directory
    aside = files.with_name(f"{files.name}-before-{time.strftime('%Y%m%d-%H%M%S')}")
    files.rename(aside)
    log.warning("starting with a new store; the files of the previous one are in %s", aside)
