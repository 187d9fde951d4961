"""`rankzero backup, doctor`: back up and check the installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.server.client import data_directory
from cli.server.options import Data, Json, server_at
from cli.terminal.printing import print_json, say
from domain.text import formats


def backup(
    file: Annotated[Path, typer.Argument(help="A new file on the server's machine.", show_default=False)],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write a consistent copy of the store, even while runs write to it."""
    written = server_at(data).post("/api/backup", {"path": str(file.expanduser().absolute())})
    if as_json:
        print_json(written)
    else:
        say(f"{written['path']} written, {formats.size(written['size_bytes'])}.")


def doctor(data: Data = None, as_json: Json = False) -> None:
    """Check this installation; exit code 1 if something needs attention.

    Raises typer.Exit with code 1 for a failed check."""
    from cli.up.doctor import examine

    checks = list(examine(data_directory(data)))
    if as_json:
        print_json([{"check": check.name, "ok": check.ok, "message": check.message} for check in checks])
    else:
        for check in checks:
            say(f"{'ok  ' if check.ok else 'LOOK'}  {check.name}: {check.message}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)
