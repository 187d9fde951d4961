"""`rankzero import`: take runs that trained elsewhere, as ended runs, and archives of other installations."""

from __future__ import annotations

import json
import socket
import sys
import zipfile
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.importers.past_run import LeftOut, PastRun, PointsBySeries, WriterPoints, can_be_stored, writer_of
from cli.importers.table import past_runs
from cli.server.client import ServerClient
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_json, print_table, say, warn
from dashboard.archives.manifest import MANIFEST
from domain.imported_runs import ImportedPoints, ImportRequest
from domain.messages import Point
from domain.text.formats import count, plural
from domain.text.json_values import storable

BATCH_POINTS = 10_000
REFUSED = 2
"""Exit code for what the server refuses."""
CLEAR_LINE = "\r\x1b[K"


def import_(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or a folder of runs at any depth.")],
    project: Annotated[str, typer.Option(help="The project of the imported runs.")] = "default",
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Import runs that trained elsewhere: event files, W&B, MLflow, trackio, Neptune, archives.

    Raises CommandFailed where there is nothing to import, or where something of it was left out."""
    if not path.exists():
        raise CommandFailed(f"There is no file or folder {path}.", 2)
    server = server_at(data)
    if is_archive(path):
        _show(import_archive(server, path), as_json)
        return
    imported, left_out = [], LeftOut()
    for format_name, run in past_runs(path, left_out):
        for request in left_out.attempt(run.source, partial(run.request, format_name, socket.gethostname(), project)):
            imported += _import_run(server, request, run, left_out)
    if imported:
        _show(imported, as_json)
    if left_out:
        for line in left_out.lines():
            warn(line)
        raise CommandFailed(f"Left out of {path}: what the lines above name. Everything else is imported.")
    if not imported:
        raise CommandFailed(
            f"No run to import is in {path}: it has no event files, no .wandb files, no store of MLflow or trackio, "
            "and no export of Neptune."
        )


def _show(imported: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(imported)
    else:
        _print(imported)


def _import_run(server: ServerClient, request: ImportRequest, run: PastRun, left_out: LeftOut) -> list[dict[str, Any]]:
    """Send a run that the server does not have, and return its row; none where the server refuses it."""
    groups = left_out.guarded(run.source, _storable(run, left_out))
    try:
        begun = server.post("/api/imports", json.loads(request.model_dump_json()))
        if is_present := begun["is_complete"]:
            deque(groups, maxlen=0)  # what it leaves out is said again
        else:
            begun = _send(server, begun, run.name, groups)
    except CommandFailed as error:
        if error.exit_code != REFUSED:
            raise
        left_out.add(run.source, f"The server refuses it: {error}")
        return []
    counts = {name: begun[name] for name in ("series", "points")}
    return [{"id": begun["id"], "name": run.name, "source": str(run.source), **counts, "is_new": not is_present}]


def _storable(run: PastRun, left_out: LeftOut) -> Iterator[PointsBySeries]:
    """Yield the points that the server can store."""
    for group in run.points():
        storable = {name: [point for point in points if can_be_stored(name, point)] for name, points in group.items()}
        if dropped := sum(map(len, group.values())) - sum(map(len, storable.values())):
            left_out.add(run.source, f"{plural(dropped, 'point')} without a name, a step or a time that can be stored.")
        yield WriterPoints(writer_of(group), storable)


def _send(server: ServerClient, begun: dict[str, Any], name: str, groups: Iterator[PointsBySeries]) -> dict[str, Any]:
    """Send the points that the server does not have, and return its last answer. Raises CommandFailed."""
    path, sent = f"/api/imports/{begun['id']}/points", begun["points"]
    for batch in _batches(groups, sent):
        content = {"series": batch, "writer": writer_of(batch), "is_last": not batch}
        points = ImportedPoints.model_validate({"start": sent, **content})
        begun = server.post(path, json.loads(points.model_dump_json(exclude_defaults=True)))  # NaN as text
        sent = begun["points"]
        _show_progress(f"{name}: {plural(sent, 'point')}")
    return begun


def _batches(groups: Iterator[PointsBySeries], stored: int) -> Iterator[PointsBySeries]:
    """Yield the points after those that are stored, a limited number of one writer at a time; at the end none."""
    skip = stored
    for writer, own in groupby(groups, writer_of):
        batch, size = dict[str, list[Point]](), 0
        for name, points in _pieces(own):
            skipped, skip = min(skip, len(points)), max(0, skip - len(points))
            batch.setdefault(name, []).extend(points[skipped:])
            size += len(points) - skipped
            if size >= BATCH_POINTS:
                yield WriterPoints(writer, batch)
                batch, size = {}, 0
        if size:
            yield WriterPoints(writer, batch)
    yield {}


def _pieces(groups: Iterator[PointsBySeries]) -> Iterator[tuple[str, list[Point]]]:
    for group in groups:
        for name, points in group.items():
            for start in range(0, len(points), BATCH_POINTS):
                yield storable(name), list(points[start : start + BATCH_POINTS])


def _show_progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"{CLEAR_LINE}{line}", end="", file=sys.stderr, flush=True)


def _print(imported: list[dict[str, Any]]) -> None:
    _show_progress("")
    rows = [
        (run["id"], run["name"], count(run["series"]), count(run["points"]), "" if run["is_new"] else "yes")
        for run in imported
    ]
    print_table(("run", "name", "series", "points", "was there already"), rows, right=frozenset({2, 3}))
    new = sum(run["is_new"] for run in imported)
    say(f"{plural(new, 'run')} imported." if new else "Nothing new to import.")


# Archives of other installations, which the dashboard imports itself: the file is only sent.

IMPORT_TIMEOUT_S = 1800.0
"""The dashboard verifies and stores everything before it answers."""


def is_archive(path: Path) -> bool:
    """Whether a file is an archive of runs."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as opened:
            return MANIFEST in opened.namelist()
    except (zipfile.BadZipFile, OSError):
        return False


def import_archive(server: ServerClient, path: Path) -> list[dict[str, Any]]:
    """Send an archive and return its runs, as `rankzero import` prints them. Raises CommandFailed."""
    source = f"{socket.gethostname()}:{path.absolute()}"
    runs = server.post_file("/api/archives", path, IMPORT_TIMEOUT_S, source=source)
    return [{**run, "source": str(path)} for run in runs]
