"""Make unified diffs for git and patch, within a time limit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from difflib import Match, SequenceMatcher

MOST_LINES = 20_000
"""Limit on a text's lines; a longer file is data, whose difference nobody reads."""
MOST_PAIRS = 1_000_000
"""Limit on pairs of equal lines, which keeps a step of the search below a second."""
CONTEXT_LINES = 3
Opcode = tuple[str, int, int, int, int]


class TooLong(Exception):
    """The search exceeded its time limit."""


class _Matcher(SequenceMatcher[str]):
    """difflib's search with a deadline checked between its steps."""

    until: float = 0.0
    opcodes: list[Opcode]

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """Do one step of the search. Raises TooLong."""
        if time.monotonic() > self.until:
            raise TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def hunks(old: str, new: str, until: float) -> str | None:
    """Return the hunks between two texts; None where they are too long or `until` (monotonic) passes."""
    a, b = _lines(old), _lines(new)
    if max(len(a), len(b)) > MOST_LINES:
        return None
    start, end = _common_ends(a, b)
    if _pairs(a[start : len(a) - end], b[start : len(b) - end]) > MOST_PAIRS:
        return None
    try:
        groups = _groups(a, b, start, end, until)
    except TooLong:
        return None
    return "".join(_hunk(a, b, group) for group in groups)


def one_sided(text: str, sign: str) -> str:
    """Return the hunk of a text that was added (`+`) or removed (`-`) as a whole."""
    lines = _lines(text)
    if not lines:
        return ""
    span = _span(0, len(lines))
    header = f"@@ -0,0 +{span} @@\n" if sign == "+" else f"@@ -{span} +0,0 @@\n"
    return header + "".join(_signed(sign, line) for line in lines)


def quoted(name: str) -> str:
    """Return a file's name as in git's patches: plain, or quoted like a C string where needed."""
    if all(c.isprintable() and c not in '"\\' for c in name):
        return name
    raw = name.encode(errors="surrogateescape")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
    return f'"{"".join(plain)}"'


def _lines(text: str) -> list[str]:
    """Split at line feeds only; as in git, other line ends are part of the line."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _common_ends(a: Sequence[str], b: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of equal lines at the beginning and at the end, which need no search."""
    shorter = min(len(a), len(b))
    start = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    remaining = shorter - start
    end = next((i for i in range(remaining) if a[-1 - i] != b[-1 - i]), remaining)
    return start, end


def _pairs(a: Sequence[str], b: Sequence[str]) -> int:
    counts = Counter(b)
    return sum(count * counts[line] for line, count in Counter(a).items())


def _groups(a: list[str], b: list[str], start: int, end: int, until: float) -> list[list[Opcode]]:
    """Return the changes in groups with context lines. Raises TooLong."""
    matcher = _Matcher(None, a[start : len(a) - end], b[start : len(b) - end])
    matcher.until = until
    changes = [
        (tag, i1 + start, i2 + start, j1 + start, j2 + start) for tag, i1, i2, j1, j2 in matcher.get_opcodes()
    ]
    before = ("equal", 0, start, 0, start)
    after = ("equal", len(a) - end, len(a), len(b) - end, len(b))
    matcher.opcodes = [before, *changes, after]
    return list(matcher.get_grouped_opcodes(CONTEXT_LINES)) if changes else []


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
