"""`rankzero metrics, logs`: print the series and logs of a run."""

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
"""Seconds of silence after which the connection of a followed log is opened again."""


def metrics(
    run: RunId,
    name: Annotated[list[str] | None, typer.Option(help="Only this series; repeatable.")] = None,
    since: Annotated[int | None, typer.Option(help="Only points from this step on.")] = None,
    source: Annotated[
        Literal["events", "printed", "probe", "hardware", "all"],
        typer.Option(help="Where the points were read."),
    ] = "events",
    attempt: Annotated[int | None, typer.Option(help="Only this attempt's points.")] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List the series of a run; with --name print their points."""
    server = server_at(data)
    series = server.get(
        run_path(run, "metrics"), name=name, since=since, source=source, attempt=attempt
    )  # every point: scripts count them
    if as_json:
        print_json(series)
    elif not series:
        say(f"Run {run} has no such series yet.")
    elif name:
        print_points(series)
    else:
        titles = ("series", "points", "last step", "last value")
        rows = [(tag, formats.count(len(points)), *last(points)) for tag, points in series.items()]
        print_table(titles, rows, right=frozenset({1, 2, 3}))


def last(points: list[Any]) -> tuple[str, str]:
    """Return step and value of the last point as text."""
    if not points:
        return formats.UNKNOWN, formats.UNKNOWN
    return formats.count(points[-1][0]), figure(points[-1][1], 6)


def print_points(series: dict[str, Any]) -> None:
    """Print every point on its own line."""
    for tag, points in series.items():
        say(f"# {tag}: step, value, seconds since the epoch")
        for step, value, wall in points:
            print(printable(step), printable(value), printable(wall), sep="\t")


def logs(
    run: RunId,
    rank: Annotated[str, typer.Option(help="A rank's number, or `launcher`.")] = "0",
    stream: Annotated[Literal["out", "err"], typer.Option(help="Standard output or error.")] = "out",
    attempt: Annotated[int | None, typer.Option(help="Number of the attempt.", show_default="latest")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep reading until the run ends.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write every byte to the terminal, including control sequences.")
    ] = False,
    data: Data = None,
) -> None:
    """Print a rank's log: text and colours to a terminal, unchanged bytes to a file or program.

    Raises CommandFailed for a rank that is neither a number nor `launcher`."""
    if rank != "launcher" and not rank.isdecimal():
        raise CommandFailed(f"--rank must be a number from 0 or `launcher`, got {rank!r}.", 2)
    write = write_bytes if raw or not sys.stdout.isatty() else TerminalWriter()
    reader = LogReader(server_at(data), run_path(run, "logs"), rank, stream, attempt, write)
    try:
        while not reader.read(follow):
            time.sleep(RETRY_S)
    finally:
        write(b"")


def write_bytes(chunk: bytes) -> None:
    """Write bytes unchanged to stdout and flush it."""
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


class TerminalWriter:
    """Write log bytes to a terminal without control sequences; an empty chunk ends the log and resets the colours."""

    def __init__(self) -> None:
        self._text = TerminalText()

    def __call__(self, chunk: bytes) -> None:
        """Write the next bytes."""
        shown = self._text.feed(chunk, is_last=not chunk)
        shown += RESET if not chunk and self._text.is_coloured else ""
        write_bytes(shown.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


class LogReader:
    """Copy a log to stdout, continuing at its offset after a broken connection."""

    def __init__(
        self, server: ServerClient, path: str, rank: str, stream: str, attempt: int | None,
        write: Callable[[bytes], None],
    ) -> None:  # fmt: skip
        self._server, self._path, self._write = server, path, write
        self._selection: dict[str, Any] = {"rank": rank, "stream": stream, "attempt": attempt}
        self._offset: int | None = None
        self._has_warned = False

    def read(self, follow: bool) -> bool:
        """Copy the log's bytes, with `follow` until the run ends.

        Returns False where the connection broke and the caller should retry. Raises ServerUnreachable where
        nothing was read yet."""
        try:
            self._copy(follow)
        except ServerUnreachable as error:
            if not follow or self._offset is None:
                raise
            if not self._has_warned and "did not answer in time" not in str(error):
                warn(f"{error} Waiting for it.")
                self._has_warned = True
            return False
        return True

    def _copy(self, follow: bool) -> None:
        options = {**self._selection, "offset": self._offset, "follow": "true" if follow else None}
        timeout_s = QUIET_S if follow else None
        with self._server.stream(self._path, read_timeout_s=timeout_s, **options) as response:
            if response.status_code == 416:
                return
            if self._offset is None:
                self._offset = int(response.headers.get("X-Rankzero-Offset", 0))
            self._has_warned = False
            for chunk in response.iter_raw():
                self._write(chunk)
                self._offset += len(chunk)
