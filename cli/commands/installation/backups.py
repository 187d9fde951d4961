"""`rankzero backup, restore`: back up the store, or a whole server, and restore a server onto an empty machine."""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli.durations import seconds
from cli.extras import require
from cli.server.client import ServerClient
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, ask_or_tell, print_json, print_outcome, say, warn
from domain.clients.addresses import data_directory
from domain.clock import SYSTEM_CLOCK
from domain.text import formats

if TYPE_CHECKING:
    from dashboard.backups.restoring import RestoredStore
    from dashboard.settings import Settings

T = TypeVar("T")
LOWEST_PRIORITY = 19
STORE_SUFFIXES = {".sqlite", ".sqlite3", ".bak"}
"""Suffixes that copies of the store often have; a folder of that name would be a surprise."""
"""Trainings on this machine go first, at its cores and at its disks."""


def backup(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE.db",
            help="A folder for whole backups; or a new .db file for the store alone.",
            show_default=False,
        ),
    ],
    keep: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Delete all but the newest N backups.", show_default="all stay"),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Repeat after this time (12h, 1d).", show_default="once")
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Back up store, files and keys into a folder, while runs continue.

    Raises CommandFailed where it cannot be written, or FILE exists; typer.Exit with code 1 where files are missing."""
    if target.suffix in STORE_SUFFIXES:
        raise CommandFailed(f"{target}: a copy of the store ends in .db, no folder of backups in {target.suffix}.", 2)
    if target.suffix == ".db":
        return _back_up_store(target, data, as_json)
    require("backup DIR", "server")
    pause_s = None if every is None else seconds(every, "--every")
    folder = target.expanduser().absolute()
    os.nice(LOWEST_PRIORITY)
    if pause_s is None:
        if not _back_up(folder, keep, data, as_json):
            raise typer.Exit(1)
        return
    if not as_json:
        say(_with_cron(folder, keep, data))
    while True:
        try:
            _back_up(folder, keep, data, as_json)
        except CommandFailed as error:  # the disk may have room, or the dashboard be back, the next time
            warn(str(error))
        SYSTEM_CLOCK.pause(pause_s)


def _with_cron(folder: Path, keep: int | None, data: Path | None) -> str:
    """Return the line with which cron repeats this command, for those who keep no terminal open."""
    options = ([] if keep is None else ["--keep", str(keep)]) + (
        [] if data is None else ["--data", str(data.absolute())]
    )
    command = shlex.join(["rankzero", "backup", str(folder), *options])
    return f"Repeats until it is ended (Ctrl-C). Without a terminal, with `crontab -e`: 17 3 * * * {command}"


def _back_up(folder: Path, keep: int | None, data: Path | None, as_json: bool) -> bool:
    """Return whether the server had every file. Raises CommandFailed."""
    from dashboard.backups.taking import keep_newest, take_backup

    settings = settings_of(data)
    now, copy_store = SYSTEM_CLOCK.wall(), partial(_copy_store, settings, folder)
    taken = told(partial(take_backup, settings, folder, copy_store, now))
    deleted = [] if keep is None else told(partial(keep_newest, folder, keep))
    written = taken.manifest
    document = {
        "path": str(taken.path),
        "size_bytes": written.size_bytes,
        "copied_bytes": taken.copied_bytes,
        "files": len(written.files),
        "missing": written.missing,
        "deleted": deleted,
    }
    amount = f"{formats.plural(len(written.files), 'file')}, {formats.size(written.size_bytes)}"
    print_outcome(
        document, as_json, f"{taken.path} written: {amount}, {formats.size(taken.copied_bytes)} of it copied."
    )
    if written.missing:
        warn(_sentence_of_missing("The store names files that the server does not have", written.missing))
    if deleted and not as_json:
        say(f"Deleted: {', '.join(deleted)}.")
    return not written.missing


def _sentence_of_missing(beginning: str, why: Mapping[str, str]) -> str:
    names = formats.as_list([f"{name} {reason}" for name, reason in why.items()], most=5)
    return f"{beginning}: {names}. `rankzero doctor` lists them."


def settings_of(data: Path | None) -> Settings:
    """Read the settings of the installation here. Raises CommandFailed where they are wrong."""
    from pydantic import ValidationError

    from dashboard.settings import Settings

    try:
        settings = Settings(data=data_directory(data))
    except ValidationError as error:
        raise CommandFailed(f"The settings RANKZERO_… are not valid: {error.errors()[0]['msg']}.") from None
    if settings.database_url is not None:
        raise CommandFailed(
            "Whole backups are for a store on SQLite. On PostgreSQL, copy the database with pg_dump, then the folder "
            f"of files ({settings.files_directory}) and the keys."
        )
    return settings


def _copy_store(settings: Settings, folder: Path, target: Path) -> None:
    """Copy the store: the dashboard does it where it runs, for it alone writes to the file."""
    from dashboard.private_files import AlreadyRunning, lock_data_directory
    from db.sqlite import SqliteDatabase
    from db.trouble import StoreMissing

    try:
        with lock_data_directory(settings.data):
            database = SqliteDatabase(f"sqlite:///{settings.data / 'rankzero.db'}", may_be_new=False)
            database.backup(target)
            database.close()
    except AlreadyRunning:
        _copy_by_dashboard(settings.data, folder, target)
    except StoreMissing:
        raise CommandFailed(f"There is no store in {settings.data}: name the server's directory with --data.") from None


def _copy_by_dashboard(data: Path, folder: Path, target: Path) -> None:
    name = f"folder-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}.db"
    copy = data / "backups" / name
    copy.unlink(missing_ok=True)  # of an interrupted backup
    try:
        server_at(data).post("/api/backup", {"name": name})
        _move(copy, target)
    finally:
        copy.unlink(missing_ok=True)


def _back_up_store(file: Path, data: Path | None, as_json: bool) -> None:
    """Write a consistent copy of the store alone; for a server elsewhere, in its `backups/`."""
    server = server_at(data)
    if server.address.is_local:
        written = _moved(server, file.expanduser().absolute())
    else:
        written = server.post("/api/backup", {"name": str(file)})
    if as_json:
        print_json(written)
    else:
        say(f"{written['path']} written, {formats.size(written['size_bytes'])}.")


def _moved(server: ServerClient, target: Path) -> dict[str, Any]:
    """Let the server copy its store into `backups/`, and move the copy with this user's permissions."""
    if os.path.lexists(target) or not target.parent.is_dir():
        raise CommandFailed(f"{target} must be a new file in an existing folder.")
    written: dict[str, Any] = server.post("/api/backup")
    try:
        _move(Path(written["path"]), target)
    except OSError as error:
        raise CommandFailed(
            f"The copy is at {written['path']} on the server's machine, and cannot be moved to {target}: "
            f"{error.strerror or error}."
        ) from None
    return written | {"path": str(target)}


def _move(copy: Path, target: Path) -> None:
    """Move a file to where nothing is, also to another file system. Raises OSError; FileExistsError for a link."""
    try:
        os.link(copy, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.ENOTSUP):
            raise
        _copy(copy, target)
    copy.unlink()


def _copy(source: Path, target: Path) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # and so follows no link
    with source.open("rb") as content, os.fdopen(descriptor, "wb") as file:
        try:
            shutil.copyfileobj(content, file)
        except OSError:
            target.unlink()
            raise


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of backups.", show_default=False)],
    name: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="The backup.", show_default="the newest")
    ] = None,
    data: Data = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, also where files of the backup are damaged.")] = False,
    as_json: Json = False,
) -> None:
    """Restore a whole server from a backup, where no data is yet.

    Raises CommandFailed where something is there, or the backup is damaged."""
    require("restore", "server")
    settings = settings_of(data)
    backup_folder, restored, damaged = told(partial(_restore, settings, folder.expanduser().absolute(), name, yes))
    document: dict[str, Any] = {"path": str(settings.data), "backup": str(backup_folder), "damaged": damaged}
    document |= {"missing": restored.inventory.missing, **restored.counts}
    print_outcome(document, as_json, f"{settings.data} has {counted(restored)}, from {backup_folder}.")
    if not as_json:
        say(f"Start it: rankzero up --data {settings.data}. Nodes send again what they reported after the backup.")
        if settings.secret_key_file or settings.join_token_file:
            say(f"RANKZERO_SECRET_KEY_FILE and RANKZERO_JOIN_TOKEN_FILE: their files' contents are in {settings.data}.")


def _restore(
    settings: Settings, folder: Path, name: str | None, yes: bool
) -> tuple[Path, RestoredStore, dict[str, str]]:
    from dashboard.backups.manifest import chosen_backup
    from dashboard.backups.restoring import Restoration

    restoration = Restoration(chosen_backup(folder, name), settings)
    try:
        if damaged := restoration.copy():
            ask_or_tell(
                _sentence_of_missing("Files of the backup are damaged", damaged)
                + " Without them, nodes are asked for their checkpoints, and logs end earlier.",
                yes,
            )
        restored = restoration.settle(SYSTEM_CLOCK.wall())
        restoration.finish()
        return restoration.backup, restored, damaged
    finally:
        restoration.discard()


def counted(restored: RestoredStore) -> str:
    """Return what a restored store has, as a part of a sentence."""
    return formats.as_list([formats.plural(amount, noun.removesuffix("s")) for noun, amount in restored.counts.items()])


def told(act: Callable[[], T]) -> T:
    """Do something with backups. Raises CommandFailed with the sentence of what went wrong."""
    from dashboard.backups.manifest import BackupUnusable
    from db.trouble import StoreUnusable

    try:
        return act()
    except (BackupUnusable, StoreUnusable) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(
            f"{error.filename or 'A disk'}: {error.strerror or error}. Nothing is listed that is not whole; a backup "
            "goes on with what it has copied."
        ) from None
