"""Print JSON documents, tables and sentences, with control characters made visible."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

PIPE_WIDTH = 200
"""Width in columns of a table that is not printed to a terminal."""


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
    is_blank = unicodedata.category(character) == "Zs"
    if (character.isprintable() or is_blank) and _can_encode(character):
        return character
    return " " if is_blank else character.encode("unicode_escape").decode()


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


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[object]], right: frozenset[int] = frozenset()
) -> None:
    """Print a table; the columns whose index is in `right` are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        table.add_column(title, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print lines of `name  value`; values of None are omitted."""
    lines = [(name, printable(value)) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")
