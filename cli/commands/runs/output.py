"""`rankzero metrics, logs`: print the series and logs of a run, and search in logs."""

from __future__ import annotations

import codecs
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import typer

from cli.server.client import ServerClient, ServerUnreachable
from cli.server.options import RUN_HELP, Data, Json, RunId, complete_run, id_of_run, run_path, server_at
from cli.terminal import CommandFailed, print_json, print_list, printable, say, warn
from domain.messages import PointChoice
from domain.text import formats
from domain.text.columns import Column, Columns, Figure
from domain.text.formats import plural

LoggedRun = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help=f"{RUN_HELP} All runs with --search.",
        autocompletion=complete_run,
        show_default=False,
        callback=id_of_run,
    ),
]
RETRY_S = 1.0
QUIET_S = 60.0
"""Seconds of silence after which the connection of a followed log is opened again."""


def metrics(
    run: RunId,
    name: Annotated[list[str] | None, typer.Option(help="Only this series; repeatable.")] = None,
    since: Annotated[int | None, typer.Option(help="Only points from this step on.")] = None,
    until: Annotated[int | None, typer.Option(help="Only points up to this step.")] = None,
    source: Annotated[
        PointChoice,
        typer.Option(help="Where the points were read."),
    ] = "events",
    attempt: Annotated[int | None, typer.Option(help="Only this attempt's points.")] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List the series of a run; with --name print their points."""
    server = server_at(data)
    choice = {"name": name, "since": since, "until": until, "source": source, "attempt": attempt}
    series = server.get(run_path(run, "metrics"), **choice)  # every point: scripts count them
    if as_json:
        print_json(series)
    elif not series:
        say(f"Run {run} has no such series yet.")
    elif name:
        print_points(series)
    else:
        print_list(series_columns("points"), list(series.items()))


def series_columns(points: str) -> Columns[tuple[str, list[Any]]]:
    """Return the columns of series with their points, which `points` names."""
    return [
        Column("series", lambda one: one[0]),
        Figure(points, lambda one: formats.count(len(one[1]))),
        Figure("last step", lambda one: formats.count(one[1][-1][0]) if one[1] else formats.UNKNOWN),
        Figure("last value", lambda one: formats.number(one[1][-1][1], 6) if one[1] else formats.UNKNOWN),
    ]


def print_points(series: dict[str, Any]) -> None:
    """Print every point on its own line."""
    for tag, points in series.items():
        say(f"# {tag}: step, value, seconds since the epoch")
        for step, value, wall in points:
            print(printable(step), printable(value), printable(wall), sep="\t")


def logs(
    run: LoggedRun = None,
    rank: Annotated[str, typer.Option(help="A rank's number, or `launcher`.")] = "0",
    stream: Annotated[Literal["out", "err"], typer.Option(help="Standard output or error.")] = "out",
    attempt: Annotated[int | None, typer.Option(help="Number of the attempt.", show_default="latest")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep reading until the run ends.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write every byte to the terminal, including control sequences.")
    ] = False,
    search: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="List the runs that printed this text instead; of one run, its matching lines.",
        ),
    ] = None,
    search_filter: Annotated[
        str | None,
        typer.Option("--filter", metavar="QUERY", help="Search only the logs of runs that match, as in `runs`."),
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Print a rank's log: text and colours to a terminal, unchanged bytes to a file or program.

    With --search, print what matches in any rank, stream and attempt, ignoring case.
    Raises CommandFailed for a rank that is neither a number nor `launcher`."""
    if search is not None:
        if run is None:
            return print_matching_runs(server_at(data), search, search_filter, as_json)
        return print_matching_lines(server_at(data), run, search, attempt, as_json)
    if run is None or search_filter or as_json:
        raise CommandFailed("Name a run, or search the logs of all with --search TEXT.", 2)
    if rank != "launcher" and not rank.isdecimal():
        raise CommandFailed(f"--rank must be a number from 0 or `launcher`, got {rank!r}.", 2)
    write = write_bytes if raw or not sys.stdout.isatty() else TerminalWriter()
    reader = LogReader(server_at(data), run_path(run, "logs"), rank, stream, attempt, write)
    try:
        while not reader.read(follow):
            time.sleep(RETRY_S)
    finally:
        write(b"")


def print_matching_lines(server: ServerClient, run: str, text: str, attempt: int | None, as_json: bool) -> None:
    """Print the lines of a run that contain a text, each after its rank, stream and number."""
    hits = matching_lines(server, run, text, attempt)
    if as_json:
        return print_json([{name: hit[name] for name in ("rank", "stream", "line", "text")} for hit in hits])
    for hit in hits:
        print(f"{log_name(hit)}:{hit['line']}: {printable(hit['text'])}")


def print_matching_runs(server: ServerClient, text: str, search: str | None, as_json: bool) -> None:
    """Print the runs that contain a text, with the number of matching lines and the first; Ctrl-C ends the search."""
    runs: list[dict[str, Any]] = []
    searched = total = 0
    is_complete = False
    try:
        for answer in matching_runs(server, text, search):
            runs, total = merged_runs(runs, answer["runs"]), answer["total"]
            searched += answer["searched"]
            if not as_json and sys.stderr.isatty():
                print(f"\rSearched {searched} of {total} runs", end="", file=sys.stderr, flush=True)
        is_complete = True
    except KeyboardInterrupt:
        warn("Interrupted: these are the matches so far.")
    if as_json:
        return print_json({"runs": runs, "searched": searched, "total": total, "is_complete": is_complete})
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if runs:
        print_list(FOUND, runs)
    say(f"{plural(len(runs), 'run')} of {searched} searched printed it.")


FOUND: Columns[dict[str, Any]] = (
    Column("run", lambda run: run["id"]), Column("name", lambda run: run["name"]),
    Figure("lines", lambda run: formats.count(run["lines"])),
    Column("first", lambda run: "attempt {attempt}, {log}:{line}".format(log=log_name(run["first"]), **run["first"])),
    Column("text", lambda run: run["first"]["text"]),
)  # fmt: skip
"""Columns of the runs whose logs match."""


def log_name(line: dict[str, Any]) -> str:
    """Return the name of the log that a line is in: `rank0.out`."""
    rank = line["rank"]
    return f"{rank if rank == 'launcher' else f'rank{rank}'}.{line['stream']}"


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


# Searches in the logs of runs, answer by answer, so that each can be told and the search be interrupted.


def matching_runs(server: ServerClient, text: str, search: str | None) -> Iterator[dict[str, Any]]:
    """Yield each answer about the runs that match a search, newest first. Raises CommandFailed."""
    after = None
    while True:
        answer = server.get("/api/logs/search", q=text, filter=search, after=after)
        yield answer
        after = answer["after"]
        if after is None:
            return


def merged_runs(runs: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs of two successive answers; one that the first left in the middle comes again in the second."""
    if runs and more and runs[-1]["id"] == more[0]["id"]:
        whole = runs[-1] | {"lines": runs[-1]["lines"] + more[0]["lines"]}
        return [*runs[:-1], whole, *more[1:]]
    return [*runs, *more]


def matching_lines(server: ServerClient, run: str, text: str, attempt: int | None) -> Iterator[dict[str, Any]]:
    """Yield the matching lines of every rank and stream of an attempt, by default the latest. Raises CommandFailed."""
    place: dict[str, Any] = {"log": 0, "offset": 0, "line": 1}
    last: tuple[Any, ...] = ()
    while True:
        answer = server.get(run_path(run, "logs/merged/search"), q=text, attempt=attempt, **place)
        for hit in answer["hits"]:
            own = (hit["rank"], hit["stream"], hit["line"])
            if own != last:  # an answer begins with the line in which the one before ended
                yield hit
            last = own
        after = {name: answer[name] for name in place}
        if answer["is_complete"] or after == place:
            return
        place = after


# Filter program output for a terminal: text and colours pass, other control sequences do not.

LONGEST_COLOUR = 64
RESET = "\x1b[0m"
_STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than tab, line feed and carriage return (progress bars), and direction marks."""
_COLOUR = re.compile(r"[0-9;:]*m")
_STRINGS = frozenset("]PX^_\x9d\x90\x98\x9e\x9f")
"""After ESC, or as one character: OSC (titles, links, the clipboard), DCS, SOS, PM, APC."""
_STRING_ENDS = re.compile("\x07|\x9c|\x1b|\n|\x18|\x1a")


class TerminalText:
    """An incremental filter from bytes, cut anywhere, to text that is safe for a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = self._text
        self._sequence = ""
        self.is_coloured = False
        """Whether a colour sequence has passed."""

    def feed(self, chunk: bytes, is_last: bool = False) -> str:
        """Return the safe text of the next bytes."""
        text, position, shown = self._decoder.decode(chunk, is_last), 0, list[str]()
        while position < len(text):
            position = self._state(text, position, shown)
        return "".join(shown)

    def _text(self, text: str, position: int, shown: list[str]) -> int:
        match = _STEERING.search(text, position)
        if match is None:
            shown.append(text[position:])
            return len(text)
        shown.append(text[position : match.start()])
        self._begin(match[0])
        return match.end()

    def _begin(self, control: str) -> None:
        self._sequence = ""
        if control == "\x1b":
            self._state = self._escape
        elif control == "\x9b":
            self._state = self._control
        elif control in _STRINGS:
            self._state = self._string

    def _escape(self, text: str, position: int, shown: list[str]) -> int:
        """Classify the sequence after ESC."""
        character = text[position]
        if character == "[":
            self._state = self._control
        elif character in _STRINGS:
            self._state = self._string
        elif not "\x20" <= character <= "\x2f":  # intermediate bytes: another character follows
            self._state = self._text
            return position + ("\x30" <= character <= "\x7e")
        return position + 1

    def _control(self, text: str, position: int, shown: list[str]) -> int:
        """Read a CSI sequence to its final character; only colours pass."""
        character = text[position]
        if "\x20" <= character <= "\x3f":
            self._sequence = (self._sequence + character)[: LONGEST_COLOUR + 1]
            return position + 1
        self._state = self._text
        if not "\x40" <= character <= "\x7e":
            return position  # an invalid sequence: read this character as text
        if _COLOUR.fullmatch(self._sequence + character) and len(self._sequence) <= LONGEST_COLOUR:
            shown.append(f"\x1b[{self._sequence}m")
            self.is_coloured = True
        return position + 1

    def _string(self, text: str, position: int, shown: list[str]) -> int:
        """Skip a control string; a line feed ends it too, so that an unterminated one hides a single line."""
        match = _STRING_ENDS.search(text, position)
        if match is None:
            return len(text)
        self._state = self._escape if match[0] == "\x1b" else self._text
        return match.start() if match[0] == "\n" else match.end()
