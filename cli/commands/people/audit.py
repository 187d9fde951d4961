"""`rankzero audit`: who did what, from where and when; for admins."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.durations import UNITS_S, seconds
from cli.server.client import ServerClient
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_list, say
from domain.people.audit import columns_of

PATH = "/api/audit"
ENTRIES_AT_ONCE = 1000
IN_THE_TABLE = 100


def audit(
    since: Annotated[
        str | None,
        typer.Option(metavar="T", help="Only since then: 24h, 7d, 2026-11-26, 2026-11-26T18:00.", show_default=False),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="WHO", help="Only what this person did.", show_default=False)
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="ACTION", help="Only this: launched, deleted, …", show_default=False)
    ] = None,
    project: Annotated[str | None, typer.Option(metavar="P", help="Only in this project.", show_default=False)] = None,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print all entries, one JSON document a line.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show who did what, newest first: the last 100 entries; all of them with --json or --jsonl.

    Raises CommandFailed for a time that is none."""
    if as_json and as_lines:
        raise CommandFailed("--json and --jsonl exclude each other.", 2)
    chosen = {"by": by, "action": action, "project": project, "since": _moment(since)}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if as_lines:
        _print_lines(data, chosen)
    else:
        server = server_at(data)
        listed = list(_entries(server, chosen)) if as_json else server.get(PATH, limit=IN_THE_TABLE, **chosen)
        none = "No entry of the audit log matches." if chosen else "The audit log is empty."
        print_list(columns_of(time.time()), listed, as_json, none)


def _entries(server: ServerClient, chosen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    before: dict[str, int] = {}
    while True:
        batch = server.get(PATH, limit=ENTRIES_AT_ONCE, **chosen, **before)
        yield from batch
        if len(batch) < ENTRIES_AT_ONCE:
            return
        before = {"before": batch[-1]["id"]}


def _print_lines(data: Path | None, chosen: dict[str, Any]) -> None:
    with server_at(data).stream(f"{PATH}.jsonl", **chosen) as response:
        for line in response.iter_lines():
            say(line)


def _moment(text: str | None) -> float | None:
    """Seconds since the epoch of a time ago (24h) or a date. Raises CommandFailed."""
    if text is None:
        return None
    if text.endswith(tuple(filter(None, UNITS_S))):
        return time.time() - seconds(text, "--since")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        example = "a time ago such as 24h or 7d, or a date such as 2026-11-26 or 2026-11-26T18:00"
        raise CommandFailed(f"--since must be {example}, got {text!r}.", 2) from None
