"""The promises in tests/promises.toml, and the statements and tests they are compared with.

Tests are parsed, never imported or collected.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lanes import LANES, ROOT, lanes_in

TABLE = Path(__file__).with_suffix(".toml")
REASONS = ("untested", "no_promise")
"""Keys in place of a lane: no test holds the promise yet, or the words promise nothing."""
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
FENCE, DIVIDER = re.compile(r"\s*```"), re.compile(r"\|[-|]+\|$")
BEGINNING = re.compile(r"#|\||\s*- |\s*$")
"""The start of a heading, table row or bullet, or an empty line."""


@dataclass(frozen=True)
class Promise:
    """A quotation from a document with the test that holds it, or the reason why it has none."""

    document: str
    quotation: str
    kind: str
    """The lane of its test, or one of REASONS."""
    evidence: str
    """The test's file and function, as pytest writes them, or the reason."""


def promises(text: str) -> list[Promise]:
    """Return the rows of the table. Raises ValueError for a row that is not a quotation with one test or reason."""
    return [_promise(document, row) for document, rows in tomllib.loads(text).items() for row in rows]


def _promise(document: str, row: dict[str, str]) -> Promise:
    key, *kinds = row
    if key != "says" or len(kinds) != 1 or kinds[0] not in (*LANES, *REASONS) or not all(row.values()):
        raise ValueError(f"[[{document}]] {row}: write `says`, and one of {', '.join((*LANES, *REASONS))}")
    return Promise(document, row["says"], kinds[0], row[kinds[0]])


# Statements of documents.


@cache
def statements(document: str) -> list[str]:
    """Return the statements of a document below `docs/`."""
    return list(statements_in((ROOT / "docs" / f"{document}.md").read_text()))


def statements_in(text: str) -> Iterator[str]:
    """Yield the plain text of each paragraph, bullet, table row and block of code; headings are left out."""
    block: list[str] = []
    is_code = False
    for line in text.splitlines():
        if DIVIDER.match(line):
            block = []  # it was the head of a table
        elif FENCE.match(line):
            yield from _plain_block(block)
            block, is_code = [], not is_code
        elif BEGINNING.match(line) and not is_code:
            yield from _plain_block(block)
            block = [] if line.startswith("#") else [line]
        else:
            block.append(line)
    yield from _plain_block(block)


def _plain_block(block: list[str]) -> Iterator[str]:
    if text := plain("\n".join(block)).removeprefix("- "):
        yield text


def plain(text: str) -> str:
    """Return a text without its Markdown, with single spaces."""
    return " ".join(re.sub(r"[*`]", "", LINK.sub(r"\1", text)).replace("|", " ").split())


# Tests and their lanes.


def lane_of_test(test: str) -> str | None:
    """Return the lane of a test, or None if there is no such test."""
    file, _, name = test.partition("::")
    if not (ROOT / file).is_file():
        return None
    return lanes_in((ROOT / file).read_text()).get(name)


def places_of(name: str) -> list[str]:
    """Return all tests of that name, in case the test has moved to another file."""
    paths = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if f"def {name}(" in path.read_text()]
    return [f"{path.relative_to(ROOT)}::{name}" for path in paths]
