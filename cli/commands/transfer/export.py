"""`rankzero export`: runs as one file, for other programs, other installations and other people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.server.options import Data, Json, RunIds, server_at
from cli.server.whole_file import fetch_whole
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_outcome
from domain.choices import ExportFormat
from domain.text import formats


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
    """Write runs to one file, whole or not at all.

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
    known = ", ".join(ExportFormat)
    raise CommandFailed(f"-o: the ending of {path.name} names no format; choose one with --format: {known}.", 2)
