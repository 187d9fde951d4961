"""`rankzero doctor --restore-drill, --collect`: try a backup, and bring files and store together again."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.commands.installation.backups import counted, settings_of, told
from cli.extras import require
from cli.terminal import CommandFailed, ask_or_tell, print_json, print_outcome, say
from domain.clock import SYSTEM_CLOCK
from domain.text import formats

if TYPE_CHECKING:
    from dashboard.storage.inventory import Inventory

MOST_NAMED = 5


def drill(folder: Path, as_json: bool) -> None:
    """Restore the newest backup into a temporary folder, and say what it has.

    Raises CommandFailed; typer.Exit with code 1 where something is damaged or missing."""
    require("doctor --restore-drill", "server")
    from dashboard.backups.manifest import chosen_backup
    from dashboard.backups.restoring import drilled

    folder, now = folder.expanduser().absolute(), SYSTEM_CLOCK.wall()
    backup = told(partial(chosen_backup, folder, None))
    written, restored, damaged = told(partial(drilled, backup, now))
    missing = {name: why for name, why in written.missing.items() if name not in damaged}
    if as_json:
        print_json(
            {"backup": str(backup), "made_at": written.made_at, "size_bytes": written.size_bytes}
            | {"objects": len(written.objects), "damaged": damaged, "missing": missing}
            | dict(restored.counts)
        )
    else:
        say(f"{backup}, made {formats.ago(written.made_at, now)}, can be restored: {counted(restored)}.")
        if written.objects:
            say(f"{formats.plural(len(written.objects), 'checkpoint')} of them stay in their bucket.")
        for title, names in (("Damaged", damaged), ("Not on the server when it was made", missing)):
            if names:
                say(f"{title}: {formats.as_list([f'{name} {why}' for name, why in names.items()], most=MOST_NAMED)}.")
    if damaged or restored.inventory.missing:
        raise typer.Exit(1)


def collect(data: Path | None, yes: bool, as_json: bool) -> None:
    """Delete files without a row, and have checkpoints without their file sent again, which is asked before.

    Raises CommandFailed, typer.Abort."""
    require("doctor --collect", "server")
    from dashboard.backups.taking import require_files
    from dashboard.private_files import AlreadyRunning, lock_data_directory
    from dashboard.storage import inventory
    from db.engine import Store

    settings, now = settings_of(data), SYSTEM_CLOCK.wall()
    told(partial(require_files, settings))
    try:
        with lock_data_directory(settings.data):
            store = told(
                partial(Store.open, settings.data / "rankzero.db", settings.data / "backups", may_be_new=False)
            )
            try:
                found = inventory.take_inventory(store, settings.files_directory, now)
                _confirm(found, yes)
                inventory.collect(store, found, now)
            finally:
                store.close()
    except AlreadyRunning:
        raise CommandFailed(
            f"A dashboard uses {settings.data}: stop it, collect, and start it again. Trainings continue meanwhile."
        ) from None
    document = {"deleted": len(found.orphans), "freed_bytes": found.orphaned_bytes}
    document |= {"checkpoints": len(found.checkpoints), "logs": len(found.shorter)}
    freed = f"{formats.plural(len(found.orphans), 'file')} without a row deleted ({formats.size(found.orphaned_bytes)})"
    asked = formats.plural(len(found.checkpoints), "checkpoint")
    print_outcome(
        document,
        as_json,
        f"{freed}; {asked} without a file not listed any more, and asked of the nodes that have them.",
    )


def _confirm(found: Inventory, yes: bool) -> None:
    """Ask before rows are taken back: their files may be on a disk that is away. Raises CommandFailed, typer.Abort."""
    if yes or not found.missing:
        return
    counts = ((found.checkpoints, "checkpoint"), (found.shorter, "log"), (found.snapshots, "code archive"))
    lacking = formats.as_list([formats.plural(len(names), noun) for names, noun in counts if names])
    if not sys.stdin.isatty():
        raise CommandFailed(
            f"Nothing was done: {lacking} would be taken back for want of files; add --yes to do it.", 2
        )
    ask_or_tell(f"Files are missing or too short: {lacking} will be taken back.")


def files_check(data: Path) -> tuple[bool, str]:
    """Compare the files with the store, for `rankzero doctor`. Raises CommandFailed."""
    if not (data / "rankzero.db").exists():
        return True, "none yet."
    from dashboard.backups.taking import require_files
    from dashboard.storage.inventory import take_inventory
    from db.engine import Store

    settings = settings_of(data)
    told(partial(require_files, settings))
    store = Store.look_into(settings.data / "rankzero.db")
    try:
        found = take_inventory(store, settings.files_directory, SYSTEM_CLOCK.wall())
    finally:
        store.close()
    if not (found.missing or found.orphans):
        return True, "each has its row in the store, and each row its file."
    gone = [f"checkpoint {number}" for number in found.checkpoints] + [f"log {number}" for number in found.shorter]
    gone += [f"code {sha256[:12]}" for sha256 in found.snapshots]
    sentences = [f"Missing or too short: {formats.as_list(gone, most=MOST_NAMED)}."] if gone else []
    if found.orphans:
        names = formats.as_list([str(path) for path in found.orphans], most=MOST_NAMED)
        sentences.append(f"Without a row, {formats.size(found.orphaned_bytes)}: {names}.")
    return False, f"{' '.join(sentences)} Stop the dashboard, then: rankzero doctor --collect"
