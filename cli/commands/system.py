"""`rankzero backup, doctor`: back up and check the installation."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.server.client import ServerClient, data_directory
from cli.server.options import Data, Json, server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, say
from domain.text import formats


def backup(
    file: Annotated[
        Path,
        typer.Argument(help="A new file; of a server elsewhere, below its data folder.", show_default=False),
    ],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write a consistent copy of the store, even while runs write to it.

    Raises CommandFailed where FILE exists, has no folder, or the copy cannot be moved there."""
    server = server_at(data)
    if server.address.is_local:
        written = _moved(server, file.expanduser().absolute())
    else:  # relative to the server's data folder, the only place where it writes
        written = server.post("/api/backup", {"path": str(file)})
    if as_json:
        print_json(written)
    else:
        say(f"{written['path']} written, {formats.size(written['size_bytes'])}.")


def _moved(server: ServerClient, target: Path) -> dict[str, Any]:
    """Let the server copy its store below its data folder, and move the copy with this user's permissions."""
    if target.exists() or not target.parent.is_dir():
        raise CommandFailed(f"{target} must be a new file in an existing folder.")
    written: dict[str, Any] = server.post("/api/backup")
    try:
        shutil.move(written["path"], target)
    except OSError as error:
        raise CommandFailed(
            f"The copy is at {written['path']} on the server's machine, and cannot be moved to {target}: "
            f"{error.strerror or error}."
        ) from None
    return written | {"path": str(target)}


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
