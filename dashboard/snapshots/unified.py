"""Make unified diffs for git and patch, within a time limit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from difflib import Match, SequenceMatcher
from io import StringIO

MOST_LINES = 20_000
"""Limit on a text's lines; a longer file is data, whose difference nobody reads."""
Opcode = tuple[str, int, int, int, int]


class TooLong(Exception):
    """The search exceeded its time limit."""


class _Matcher(SequenceMatcher[str]):
    """difflib's search with a deadline checked between its steps."""

    until: float = 0.0

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Do one step of the search. Raises TooLong."""
        if time.monotonic() > self.until:
            raise TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def hunks(old: str, new: str, until: float) -> str | None:
    """Return the hunks between two texts; None where they are too long or `until` (monotonic) passes."""
    a, b = _lines(old), _lines(new)
    if a and b and max(len(a), len(b)) > MOST_LINES:
        return None
    matcher = _Matcher(None, a, b)
    matcher.until = until
    try:
        return "".join(_hunk(a, b, group) for group in matcher.get_grouped_opcodes())
    except TooLong:
        return None


def quoted(name: str) -> str:
    """Return a file's name as in git's patches: plain, or quoted like a C string where needed."""
    if all(c.isprintable() and c not in '"\\' for c in name):
        return name
    raw = name.encode(errors="surrogateescape")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
    return f'"{"".join(plain)}"'


def _lines(text: str) -> list[str]:
    """Split at line feeds only; as in git, other line ends are part of the line."""
    return list(StringIO(text, newline="\n"))


def _hunk(a: Sequence[str], b: Sequence[str], group: Sequence[Opcode]) -> str:
    old = _span(group[0][1], group[-1][2])
    new = _span(group[0][3], group[-1][4])
    lines = [f"@@ -{old} +{new} @@\n"]
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [_signed(" ", line) for line in a[i1:i2]]
        else:
            lines += [_signed("-", line) for line in a[i1:i2]]
            lines += [_signed("+", line) for line in b[j1:j2]]
    return "".join(lines)


def _span(start: int, stop: int) -> str:
    """Return a range in a unified diff's notation: first line and number of lines."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _signed(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
