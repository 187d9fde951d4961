"""`rankzero sync`: send what watched commands have left on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cli.extras import require
from cli.server.options import Json
from cli.terminal import print_json, print_table, say, warn
from domain.clients.addresses import data_directory
from domain.text.formats import size

Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]",
        help="A data directory, its folder `watched`, or the folder of one command.",
        show_default="this machine's data directory",
    ),
]


class Synced(NamedTuple):
    """What was done for one command."""

    run: str
    sent_bytes: int
    left_bytes: int
    is_left: bool
    reason: str


def sync(folder: Folder = None, as_json: Json = False) -> None:
    """Send what watched commands could not send: their server was away, or their machine went. Exit 1: some is left."""
    require("sync", "watch")
    logging.getLogger("worker").setLevel(logging.CRITICAL)  # each command's reason is told below
    synced = [*_sync_all((folder or data_directory(None)).expanduser().absolute())]
    if as_json:
        print_json([{"run": one.run, "sent": one.sent_bytes, "left": one.left_bytes} for one in synced])
    elif not synced:
        say("Nothing is left to send.")
    else:
        rows = [(one.run, size(one.sent_bytes), size(one.left_bytes), one.reason) for one in synced]
        print_table(("run", "sent", "left", "reason"), rows, right=frozenset({1, 2}))
    for one in synced if as_json else ():
        if one.reason:
            warn(f"{one.run}: {one.reason}")
    _exit_by(synced)


def _exit_by(synced: list[Synced]) -> None:
    """Exit with 1 where some is left. Raises Exit."""
    if any(one.is_left for one in synced):
        raise typer.Exit(1)


def _sync_all(folder: Path) -> Iterator[Synced]:
    from worker.watched.folder import WATCH_FILE, all_folders

    if (folder / WATCH_FILE).exists():
        yield _sync(folder)
        return
    for each in all_folders(folder) or all_folders(folder.parent if folder.name == "watched" else folder):
        yield _sync(each)


def _sync(folder: Path) -> Synced:
    """Work for one command until it is delivered."""
    from cli.commands.anywhere.companion import connect
    from worker.watched.companion import Companion, is_live, lock
    from worker.watched.folder import read
    from worker.watched.place import read_place
    from worker.watched.progress import read_progress

    try:
        place, before = read_place(folder), read_progress(folder)
        run = place.assignment.run_id if place else read(folder).run_id
        left = before.total_bytes - before.sent_bytes
        if is_live(folder):
            return Synced(run, before.sent_bytes, left, False, "It is being watched, and sent, now.")
        descriptor = lock(folder)
        companion = Companion(folder, connect, patience_s=PATIENCE_S)
        is_delivered, told = companion.run(), companion.progress.current
        os.close(descriptor)
    except (OSError, ValueError) as error:
        return Synced(folder.name, 0, 0, True, f"{folder} cannot be sent: {error}")
    is_left = not is_delivered and told.state != "done"
    return Synced(run, told.sent_bytes, told.total_bytes - told.sent_bytes, is_left, told.message)


PATIENCE_S = 10.0
"""So long a server may be away."""
