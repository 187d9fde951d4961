"""Print JSON documents, tables and sentences, with control characters made visible; the error that ends a command."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from cli.table_widths import fitted
from domain.people.rights import OWNER
from domain.text.columns import Column, Columns
from domain.text.formats import UNKNOWN, as_list

NEVER_FOLDED = frozenset({"id", "run"})
"""Titles of columns with ids: a part of one is of no use."""


def print_json(document: Any) -> None:
    """Print the JSON document of `--json`."""
    print(json.dumps(document, ensure_ascii=True, indent=2 if sys.stdout.isatty() else None))


def printable(value: object) -> str:
    """Return the text with control characters, direction marks and lone surrogates escaped, like \\x1b.


    Characters that the terminal's encoding lacks are escaped too; blanks of any width become plain ones."""
    return "".join(map(_printable, str(value)))


def _printable(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    if unicodedata.category(character) == "Zs":
        return " "
    if character.isprintable() and _can_encode(character):
        return character
    return character.encode("unicode_escape").decode()


def _can_encode(character: str) -> bool:
    try:
        character.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def say(sentence: str) -> None:
    """Print a sentence on stdout."""
    print(printable(sentence), flush=True)


def warn(sentence: str) -> None:
    """Print a sentence on stderr."""
    print(printable(sentence), file=sys.stderr, flush=True)


def print_outcome(document: dict[str, Any], as_json: bool, sentence: str) -> None:
    """Print the JSON document, or the outcome as a sentence."""
    if as_json:
        print_json(document)
    else:
        say(sentence)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]], right: frozenset[int] = frozenset()) -> None:
    """Print a table; the columns whose index is in `right` are right-aligned."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_for_people(titles, cells, right)
    else:
        _print_aligned([list(titles), *cells], right)


def print_list(columns: Columns[Any], entries: Sequence[Any], as_json: bool = False, empty: str = "") -> None:
    """Print what is listed, as JSON or as a table; `empty` is said where there is nothing."""
    if as_json:
        print_json(entries)
    elif empty and not entries:
        say(empty)
    else:
        right = frozenset(number for number, column in enumerate(columns) if column.is_figure)
        rows = [[column.cell(entry) for column in columns] for entry in entries]
        print_table([column.title for column in columns], rows, right)


def with_person(columns: Columns[Any], entries: Sequence[Any]) -> Columns[Any]:
    """Return the columns, and one for who did each unless all of it is the owner's or nobody's."""
    by = Column[Any]("by", lambda entry: entry.get("by") or UNKNOWN)
    return [*columns, by] if {entry.get("by") for entry in entries} - {None, OWNER} else columns


def _print_for_people(titles: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int]) -> None:
    """Fit the table to the terminal; ids stay whole, to be copied."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(markup=False, highlight=False, emoji=False)
    whole = right | {number for number, title in enumerate(titles) if title in NEVER_FOLDED}
    fitting = fitted(titles, [_widths(column) for column in zip(titles, *rows, strict=True)], whole, console.width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for number, width in fitting.items():
        side: Literal["left", "right"] = "right" if number in right else "left"
        table.add_column(titles[number], justify=side, overflow="fold", no_wrap=number in whole, width=width)
    for row in rows:
        table.add_row(*(Text(row[number]) for number in fitting))
    console.print(table)
    if hidden := [title for number, title in enumerate(titles) if number not in fitting]:
        console.print(f"A wider terminal also shows {as_list(hidden)}.", style="dim")


def _widths(column: Sequence[str]) -> tuple[int, int]:
    """The widths of the longest cell and of the longest word of a column."""
    from rich.cells import cell_len

    longest = max(map(cell_len, column))
    return longest, max((cell_len(part) for cell in column for part in cell.split()), default=0)


def _print_aligned(lines: Sequence[Sequence[str]], right: frozenset[int]) -> None:
    """Print columns that two blanks or more divide, each line whole, as other programs read them."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print lines of `name  value`; values of None are omitted."""
    lines = [(name, printable(value)) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")


def ask_or_tell(consequence: str, yes: bool = False) -> None:
    """Ask on a terminal before something is taken from others that can be given back; elsewhere say what it is.

    Nothing where the sentence is empty, or `yes`. Raises typer.Abort."""
    if not consequence or yes:
        return
    if not sys.stdin.isatty():
        return warn(consequence)
    import typer

    typer.confirm(f"{consequence} Continue?", abort=True, err=True)


# The error that ends a command.


class CommandFailed(Exception):
    """A failed command with one sentence for the user; exit code 1: it failed, 2: wrong usage."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
