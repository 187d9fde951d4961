"""The promises of documents, as tests/promises.toml lists them, and the documents and tests they are compared with.

All is read from files: no test is imported or collected.
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
"""What stands in place of a lane where no test holds a promise, or where words promise nothing."""
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
FENCE, DIVIDER = re.compile(r"\s*```"), re.compile(r"\|[-|]+\|$")
BEGINNING = re.compile(r"#|\||\s*- |\s*$")
"""Of a heading, a row of a table or a bullet, or an empty line."""


@dataclass(frozen=True)
class Promise:
    """Words of a document with the test that holds them, or with the reason why none does."""

    document: str
    says: str
    kind: str
    """The lane of its test, or one of REASONS."""
    held_by: str
    """The file and function of its test, as pytest writes them, or the reason."""


def promises(text: str) -> list[Promise]:
    """Return the lines of a table; raises ValueError for one that is not a quotation with one test or reason."""
    return [_promise(document, row) for document, rows in tomllib.loads(text).items() for row in rows]


def _promise(document: str, row: dict[str, str]) -> Promise:
    says, *kinds = row
    if says != "says" or len(kinds) != 1 or kinds[0] not in (*LANES, *REASONS) or not all(row.values()):
        raise ValueError(f"[[{document}]] {row}: write `says`, and one of {', '.join((*LANES, *REASONS))}")
    return Promise(document, row["says"], kinds[0], row[kinds[0]])


# Documents, by what stands together in them.


@cache
def statements(document: str) -> list[str]:
    """Return the statements of a document below `docs/`."""
    return list(statements_in((ROOT / "docs" / f"{document}.md").read_text()))


def statements_in(text: str) -> Iterator[str]:
    """Yield the plain text of each paragraph, bullet, row of a table and block of code, but for headings."""
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


# Tests, by their functions and marks.


def lane_of_test(test: str) -> str | None:
    """Return the lane of a test, the first where its cases are in several; None where there is no such test."""
    file, _, name = test.partition("::")
    if not (ROOT / file).is_file():
        return None
    return lanes_in((ROOT / file).read_text()).get(name)


def places_of(name: str) -> list[str]:
    """Return the tests of that name in all files, for somebody whose test has moved."""
    paths = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if f"def {name}(" in path.read_text()]
    return [f"{path.relative_to(ROOT)}::{name}" for path in paths]
