"""Count the printed lines with values that no rule reads, so that a finding can say so."""

from __future__ import annotations

import re

from domain.series.printed_pattern import LONGEST_EXAMPLE, NUMBER, is_fraction
from worker.streams.printed_line import PrintedLine, bar_values, clean_values, holds_values
from worker.streams.printed_values import has_other_values, is_measured, pairs

LEAST_REPEATED = 3
"""Lines of the same words with other numbers, before they count as what a training prints."""
MAX_UNREAD = 1000
MAX_SHAPES = 200


class UnreadLines:
    """The unread lines of one log. Those of the same words are of one shape; the same values count once."""

    def __init__(self) -> None:
        self.measured = 0
        """Lines with a loss or the like of which nothing is read."""
        self.repeated = 0
        """Lines, also partly read ones, of shapes that come again with other numbers."""
        self._examples: dict[bool, str] = {}
        self._shapes: dict[str, tuple[int, list[str]]] = {}
        """By shape the number of lines and the values of the last."""

    @property
    def example(self) -> str:
        """A line whose shape comes again, else the first that is unread; empty where there is none."""
        return self._examples.get(True) or self._examples.get(False, "")

    def take(self, text: str, line: PrintedLine | None) -> None:
        """Count a cleaned line of which `line` is read."""
        if max(self.measured, self.repeated) >= MAX_UNREAD:
            return
        values = clean_values(text)
        if values is None or not (_has_unread_values(values) if line is None else _has_more(values, line)):
            return
        if line is None and holds_values(text):
            self.measured += 1
            self._examples.setdefault(False, text.strip()[:LONGEST_EXAMPLE])
        self._take_shape(text.strip())

    def _take_shape(self, text: str) -> None:
        shape = " ".join(_DIGITS.sub("#", text).split())
        values = [value for value in _NUMBER.findall(text) if is_fraction(value)]
        count, last = self._shapes.get(shape, (0, [""]))
        if values == last or (not count and len(self._shapes) >= MAX_SHAPES):
            return
        self._shapes[shape] = count + 1, values
        if count + 1 >= LEAST_REPEATED:
            self.repeated += 1 if count + 1 > LEAST_REPEATED else LEAST_REPEATED
            self._examples.setdefault(True, text[:LONGEST_EXAMPLE])


def _has_more(text: str, line: PrintedLine) -> bool:
    """Whether a line that is read has values that are not."""
    fractions = sum(not value.is_integer() for tag, value in line.values.items() if not tag.endswith("]"))
    return has_other_values(bar_values(text), fractions)


def _has_unread_values(text: str) -> bool:
    """Whether a line has values: with a name, beside a word like loss, or in columns behind a whole number."""
    text = bar_values(text)
    if any(pair.is_fraction for pair in pairs(text)) or has_other_values(text) or _COLUMNS.fullmatch(text):
        return True
    return any(map(is_fraction, _NUMBER.findall(text))) and any(map(is_measured, _WORD.findall(text.lower())))


_NUMBER = re.compile(rf"(?<![\w.])(?:{NUMBER})(?![\w]|\.\d)")
_DIGITS = re.compile(rf"(?<![\w.])(?:{NUMBER})|\d+")
_WORD = re.compile(r"[a-z][a-z_]*")
_COLUMNS = re.compile(r"[\s|]*\d+(?=.*\.\d)(?:(?:\s*[,;|]\s*|\s+)[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)+[\s|]*")
