"""The console script: `rankzero watch` starts its command at once, all else goes through Typer.

Typer, pydantic and the HTTP client take several times as long to import as a command may be held up.
"""

from __future__ import annotations

import getopt
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.watched.front import WatchOptions


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["watch"] and (options := parsed(sys.argv[2:])) is not None:
        run_watch(options)
    from cli.main import main

    main()


def run_watch(options: WatchOptions) -> None:
    """Run a watched command, and end as it ended."""
    from worker.watched.command import leave
    from worker.watched.front import watch

    leave(watch(options, data_directory()))


def parsed(arguments: Sequence[str]) -> WatchOptions | None:
    """Return the options of `rankzero watch`; None for its help and for wrong usage, which Typer explains."""
    from worker.watched.front import WatchOptions

    try:
        options, argv = getopt.getopt(list(arguments), "", ["name=", "project=", "run=", "tag=", "look-only"])
    except getopt.GetoptError:
        return None
    given = dict(options)
    if not argv or any(name not in arguments and f"{name}={value}" not in arguments for name, value in options):
        return None  # getopt takes abbreviations
    return WatchOptions(
        argv=argv,
        name=given.get("--name", ""),
        project=given.get("--project", "default"),
        tags=[value for name, value in options if name == "--tag"],
        key=given.get("--run"),
        look_only="--look-only" in given,
    )


def data_directory() -> Path:
    """Return what `cli.server.client.data_directory` returns on Linux, without its imports."""
    named = os.environ.get("RANKZERO_DATA")
    shared = os.environ.get("XDG_DATA_HOME", "").strip() or "~/.local/share"
    return Path(named or f"{shared}/rankzero").expanduser().absolute()
