"""`rankzero metrics, logs`: what a run has said."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from cli.commands.runs import figure
from cli.server.client import ServerClient, ServerUnreachable
from cli.server.options import Data, Json, RunId, run_path, server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_table, printable, say, warn
from cli.terminal.terminal import RESET, TerminalText
from domain.text import formats

RETRY_S = 1.0
QUIET_S = 60.0
"""A followed log may be silent for so long before the connection is made anew."""


def metrics(
    run: RunId,
    name: Annotated[list[str] | None, typer.Option(help="Only this series; repeatable.")] = None,
    since: Annotated[int | None, typer.Option(help="Only points from this step on.")] = None,
    source: Annotated[
        Literal["events", "printed", "probe", "all"], typer.Option(help="Where the points were read.")
    ] = "events",
    attempt: Annotated[int | None, typer.Option(help="Only this attempt's points.")] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show the series of a run; with --name its points."""
    server = server_at(data)
    found = server.get(
        run_path(run, "metrics"), name=name, since=since, source=source, attempt=attempt
    )  # every point: scripts count them
    if as_json:
        print_json(found)
    elif not found:
        say(f"Run {run} has no such series yet.")
    elif name:
        print_points(found)
    else:
        titles = ("series", "points", "last step", "last value")
        rows = [(tag, formats.count(len(points)), *last(points)) for tag, points in found.items()]
        print_table(titles, rows, right=frozenset({1, 2, 3}))


def last(points: list[Any]) -> tuple[str, str]:
    """Step and value of the last point."""
    if not points:
        return formats.UNKNOWN, formats.UNKNOWN
    return formats.count(points[-1][0]), figure(points[-1][1], 6)


def print_points(series: dict[str, Any]) -> None:
    """Every point on its own line."""
    for tag, points in series.items():
        say(f"# {tag}: step, value, seconds since the epoch")
        for step, value, wall in points:
            print(printable(step), printable(value), printable(wall), sep="\t")


def logs(
    run: RunId,
    rank: Annotated[str, typer.Option(help="A rank's number, or `launcher`.")] = "0",
    stream: Annotated[Literal["out", "err"], typer.Option(help="Standard output or error.")] = "out",
    attempt: Annotated[int | None, typer.Option(help="Number of the attempt.", show_default="latest")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Every byte also to a terminal, whatever it does to it.")
    ] = False,
    data: Data = None,
) -> None:
    """Print a rank's log: to a terminal its text and colours, to a file or program byte for byte."""
    if rank != "launcher" and not rank.isdecimal():
        raise CommandFailed(f"--rank must be a number from 0 or `launcher`, got {rank!r}.", 2)
    write = write_bytes if raw or not sys.stdout.isatty() else TerminalWriter()
    reader = LogReader(server_at(data), run_path(run, "logs"), rank, stream, attempt, write)
    try:
        while not reader.read(follow):
            time.sleep(RETRY_S)
    finally:
        write(b"")


def write_bytes(piece: bytes) -> None:
    """To stdout as they are, at once."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


class TerminalWriter:
    """Writes to a terminal what it may be shown; an empty piece is the end, where its own colours come back."""

    def __init__(self) -> None:
        self._text = TerminalText()

    def __call__(self, piece: bytes) -> None:
        """Write the next bytes."""
        shown = self._text.feed(piece, is_last=not piece)
        shown += RESET if not piece and self._text.is_coloured else ""
        write_bytes(shown.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


class LogReader:
    """Copies a log to stdout; knows how far it came, so that a broken connection costs nothing."""

    def __init__(
        self, server: ServerClient, path: str, rank: str, stream: str, attempt: int | None,
        write: Callable[[bytes], None],
    ) -> None:  # fmt: skip
        self._server, self._path, self._write = server, path, write
        self._which: dict[str, Any] = {"rank": rank, "stream": stream, "attempt": attempt}
        self._offset: int | None = None
        self._told = False

    def read(self, follow: bool) -> bool:
        """Copy what there is, or with `follow` what comes until the end; False: ask again."""
        try:
            self._copy(follow)
        except ServerUnreachable as error:
            if not follow or self._offset is None:
                raise
            if not self._told and "did not answer in time" not in str(error):
                warn(f"{error} Waiting for it.")
                self._told = True
            return False
        return True

    def _copy(self, follow: bool) -> None:
        options = {**self._which, "offset": self._offset, "follow": "true" if follow else None}
        timeout_s = QUIET_S if follow else None
        with self._server.stream(self._path, read_timeout_s=timeout_s, **options) as answer:
            if answer.status_code == 416:
                return
            if self._offset is None:
                self._offset = int(answer.headers.get("X-Rankzero-Offset", 0))
            self._told = False
            for piece in answer.iter_raw():
                self._write(piece)
                self._offset += len(piece)
