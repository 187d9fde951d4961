"""The console script: `rankzero watch` starts its command at once, all else goes through Typer.

Typer, pydantic and the HTTP client take several times as long to import as a command may be held up.
"""

from __future__ import annotations

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

    words, tags, look_only = [*arguments], list[str](), False
    given = {"--name": "", "--project": "default", "--run": ""}
    while words and words[0].startswith("-") and (argument := words.pop(0)) != "--":
        option, equals, value = argument.partition("=")
        if argument == "--look-only":
            look_only = True
        elif option not in (*given, "--tag") or not (equals or words):
            return None
        elif option == "--tag":
            tags.append(value if equals else words.pop(0))
        else:
            given[option] = value if equals else words.pop(0)
    name, project, key = given.values()
    return WatchOptions(words, name, project, tuple(tags), key or None, look_only) if words else None


def data_directory() -> Path:
    """Return what `domain.clients.addresses.data_directory` returns on Linux, without its imports."""
    named = os.environ.get("RANKZERO_DATA")
    shared = os.environ.get("XDG_DATA_HOME", "").strip() or "~/.local/share"
    return Path(named or f"{shared}/rankzero").expanduser().absolute()
