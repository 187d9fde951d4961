"""`rankzero export, share`: runs as one file or as a read-only link, for other programs, installations and people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.server.client import ServerClient
from cli.server.download import fetch_whole
from cli.server.options import Data, Json, RunIds, complete_run, ids_of_runs, server_at
from cli.terminal import CommandFailed, print_list, print_outcome, say, with_person
from domain.choices import RUN_ID, ExportFormat
from domain.text import formats
from domain.text.columns import Column, Columns
from domain.text.formats import clock_time


def export(
    runs: RunIds,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="PATH", help="File to write; it is replaced.", show_default=False),
    ],
    kind: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="The kind of file.", show_default="from PATH's ending"),
    ] = None,
    without_checkpoints: Annotated[
        bool, typer.Option("--without-checkpoints", help="Leave the checkpoints out of an archive.")
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write runs to one file, completely or not at all.

    csv, parquet and json hold every point of all series; html is a report to pass on; an archive (zip) holds everything
    of runs that have ended, and `rankzero import` brings it into another installation."""
    target = output.expanduser().absolute()
    chosen = kind or _format_of(target)
    params = {"runs": ",".join(runs), "format": str(chosen)}
    if without_checkpoints:
        params["checkpoints"] = "false"
    size_bytes = fetch_whole(server_at(data), "/api/export", target, **params)
    document = {"path": str(target), "size_bytes": size_bytes}
    print_outcome(document, as_json, f"{target}: {formats.size(size_bytes)}.")


def _format_of(path: Path) -> ExportFormat:
    """Return the format that a file's name says. Raises CommandFailed."""
    for kind in ExportFormat:
        if path.name.endswith(kind.suffix):
            return kind
    formats = ", ".join(ExportFormat)
    raise CommandFailed(f"-o: the ending of {path.name} names no format; choose one with --format: {formats}.", 2)


# `rankzero share`: read-only links to runs, which end on a date or when they are revoked.

LINKS_PATH = "/api/shared-links"


def share(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…", help="The runs, as for `show`.", autocompletion=complete_run, show_default=False
        ),
    ],
    days: Annotated[int, typer.Option(min=1, max=366, help="Days for which the link is valid.")] = 7,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Make a link that shows runs to anyone who has it: curves, tables and notes, without signing in, until it ends.

    `rankzero share list` lists the links, `rankzero share revoke ID` ends one at once."""
    server = server_at(data)
    match runs:
        case ["list"]:
            links = server.get(LINKS_PATH)
            none = "There is no link. `rankzero share RUN` makes one."
            print_list(with_person(LINKS, links), links, as_json, none)
        case ["revoke", *ids]:
            _revoke(server, ids, as_json)
        case _:
            link = server.post(LINKS_PATH, {"runs": ids_of_runs(context, runs), "days": days})
            print_outcome(link, as_json, link["url"])
            if not as_json:
                say(f"Valid until {clock_time(link['expires_at'])} UTC: {formats.SHOWN_ONCE}.")


LINKS: Columns[Any] = (
    Column("id"), Column("state"), Column("valid until (UTC)", lambda link: clock_time(link.expires_at)),
    Column("runs", lambda link: " ".join(link.runs)),
)  # fmt: skip


def _revoke(server: ServerClient, ids: list[str], as_json: bool) -> None:
    """End one link. Raises CommandFailed."""
    if len(ids) != 1 or not RUN_ID.fullmatch(ids[0]):
        raise CommandFailed("Name one link: `rankzero share revoke ID`; `rankzero share list` lists them.", 2)
    print_outcome(server.delete(f"{LINKS_PATH}/{ids[0]}"), as_json, f"Link {ids[0]} is revoked.")
