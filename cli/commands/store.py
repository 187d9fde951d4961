"""`rankzero migrate-store`: copy the store from its SQLite file to PostgreSQL."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from cli.extras import require
from cli.server.client import data_directory
from cli.server.options import Data, Json
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, say

DATABASE_URL = "RANKZERO_DATABASE_URL"


def migrate_store(
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="The SQLite store.", show_default="the data directory's"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="An empty PostgreSQL database.", show_default=DATABASE_URL),
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Copy an SQLite store to PostgreSQL; the SQLite file is left unchanged.

    Raises CommandFailed for a store or database that cannot be used."""
    require("migrate-store", "server")
    from dashboard.private_files import AlreadyRunning, lock_data_directory
    from db.copy_store import NotMoved, copy_store, sqlite_file

    folder = data_directory(data)
    url = _target(target)
    try:
        file = sqlite_file(source or str(folder / "rankzero.db"))
        with lock_data_directory(file.parent):
            rows = copy_store(file, url, lambda table, count: None if as_json else say(f"{table}: {count}"))
    except (NotMoved, AlreadyRunning) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename} cannot be used: {error.strerror}.") from None
    if as_json:
        print_json({"from": str(file), "rows": rows})
        return
    total = sum(rows.values())
    say(f"{total} rows of {len(rows)} tables copied and compared; {file} is unchanged.")
    say(f"Start the dashboard with {DATABASE_URL} set and the same --data: logs and checkpoints stay there.")


def _target(option: str | None) -> str:
    """Return the target's URL; a password in an argument is rejected because everybody on the machine can read it."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    url = option or os.environ.get(DATABASE_URL)
    if not url:
        raise CommandFailed(f"--to is needed, or {DATABASE_URL}: postgresql+psycopg://USER@HOST/DATABASE", 2)
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise CommandFailed("--to is not a URL: use postgresql+psycopg://USER@HOST/DATABASE", 2) from None
    if option and (parsed.password or "password" in parsed.query):
        raise CommandFailed(
            "--to must not contain the password, because others on this machine could read it: put it "
            f"into PGPASSWORD or ~/.pgpass, or the whole URL into {DATABASE_URL}.",
            2,
        )
    return url
