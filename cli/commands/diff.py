"""`rankzero diff`: what differs between two runs, as a text that people read and git applies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from cli.server.options import Data, Json, RunId, complete_run, id_of_run, run_path, server_at
from cli.terminal.printing import print_json, printable, warn
from dashboard.compare.spec_changes import in_words

Other = Annotated[
    str,
    typer.Argument(
        metavar="OTHER", help="The run it is compared with.", autocompletion=complete_run, show_default=False,
        callback=id_of_run,
    ),
]  # fmt: skip
COLOURS = {"+": "32", "-": "31", "@": "36", "#": "1", "d": "1"}
"""Colour of a line at a terminal, by its first character."""


def diff(run: RunId, other: Other, data: Data = None, as_json: Json = False) -> None:
    """Show what differs from RUN to OTHER: settings as comments, code as a patch."""
    differences = server_at(data).get(run_path(run, "diff"), **{"with": other})
    if as_json:
        print_json(differences)
        return
    code = differences["code"]
    print_lines(setting(change) for change in differences["spec"])
    print_lines(code["diff"].split("\n")[:-1])
    if code["note"]:
        warn(code["note"])
    if code["truncated"]:
        warn("The difference is too large to show all lines, but every file that differs is named.")
    if not differences["spec"] and differences["same_code"]:
        warn("No difference.")


def setting(change: dict[str, Any]) -> str:
    """Return a setting as a comment line, which patch ignores."""
    old, new = in_words(change["old"], change["new"])
    return f"# {printable(change['label'])}: {printable(old)} -> {printable(new)}"


def print_lines(lines: Iterable[str]) -> None:
    """Print lines unchanged to a program, and coloured and without control characters to a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode(errors="replace"))
        sys.stdout.buffer.flush()
        return
    for line in lines:
        shown = "\t".join(map(printable, line.split("\t")))
        colour = None if os.environ.get("NO_COLOR") else COLOURS.get(line[:1])
        print(f"\x1b[{colour}m{shown}\x1b[0m" if colour else shown)
