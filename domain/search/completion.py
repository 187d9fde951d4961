"""Complete the word of a search at the cursor: fields, their values and series."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from domain import spec
from domain.messages import Reason, State
from domain.search.fields import ALIASES, FIELDS, PLURAL, SeriesFigure, similar
from domain.search.parser import ME
from domain.search.query import FieldKind
from domain.series.goals import goal

MOST = 12
"""Proposals for one word."""
STORED = frozenset({"tag", "project", "by", "node", "target", "imported", "series"})
"""Fields (and series) whose values the store has."""
Lookup = Callable[[str, str], Iterable[str]]
"""Stored values of one of `STORED` that hold a text, whatever the case."""
_WORD = re.compile(r'(?:"[^"]*"?|[^\s|"])+')
_COMPARED = re.compile(r'("[^"]*"|[^\s":<>=!|]+)(:?(?:<=|>=|!=|<|>|=)|:)"?(.*)', re.DOTALL)
_AGES = ("<1d", "<7d", "<30d", ">30d")
_SIGNS = {
    FieldKind.NAME: (":",),
    FieldKind.TEXT: (":",),
    FieldKind.FLAG: (":",),
    FieldKind.MOMENT: (":<", ":>"),
}


class ProposedWord(NamedTuple):
    """A text that can take the word's place, and the kind of thing it is."""

    text: str
    kind: str


class Completion(NamedTuple):
    """Proposals for the characters `start` to `end` (exclusive) of a search."""

    start: int
    end: int
    proposals: list[ProposedWord]


def complete(text: str, cursor: int, stored: Lookup) -> Completion:
    """Propose fields, values and series for the word before the cursor."""
    before = text[:cursor]
    last_word = next((match for match in _WORD.finditer(before) if match.end() == cursor), None)
    start = last_word.start() if last_word else cursor
    start += before[start : start + 1] == "-"
    typed, compared = before[start:], _COMPARED.fullmatch(before[start:])
    proposals = _values(compared, stored) if compared else _subjects(typed, stored)
    return Completion(start, cursor, [proposal for proposal in proposals if proposal.text != typed][:MOST])


def complete_column(text: str, stored: Lookup) -> list[str]:
    """Propose fields, and numbers of series, for a column of a list."""
    part = text.strip().strip('"').lower()
    figure, colon, name = part.partition(":")
    series = [_series(tag) for tag in stored("series", name if colon else part)]
    figures = [figure] if colon and figure in tuple(SeriesFigure) else ["", *SeriesFigure]
    numbers = [
        f"{prefix}:{name}" if prefix else name for name in series for prefix in figures if _is_clear(prefix, name)
    ]
    fields = [name for name in FIELDS if part in name and name not in PLURAL]
    return [*sorted(fields, key=lambda name: not name.startswith(part)), *numbers]


def _is_clear(figure: str, series: str) -> bool:
    """Whether the figure says something of its own: the last one is that without a word before it."""
    return figure != SeriesFigure.LAST and (figure != SeriesFigure.BEST or goal(series) is not None)


def _subjects(typed: str, stored: Lookup) -> list[ProposedWord]:
    """Fields first, then series; an exact name with what may follow it."""
    part = typed.strip('"').lower()
    exact = FIELDS.get(ALIASES.get(part, part))
    proposals = [ProposedWord(part + sign, exact) for sign in _signs(exact)] if exact else []
    names = [name for name in [*FIELDS, *ALIASES] if part in name and name != part]
    for name in sorted(names, key=lambda name: not name.startswith(part)):
        kind = FIELDS[ALIASES.get(name, name)]
        proposals.append(ProposedWord(name + (":" if _signs(kind) == (":",) else ""), kind))
    series = [ProposedWord(_series(name) + "<", FieldKind.SERIES) for name in stored("series", part) if '"' not in name]
    room = MOST - min(len(series), MOST // 2)
    return proposals[:room] + series if part else proposals


def _values(compared: re.Match[str], stored: Lookup) -> list[ProposedWord]:
    name, sign, part = compared.groups()
    field = ALIASES.get(name.lower(), name.lower())
    values = [value for value in _fixed(field, sign) if part.lower() in value.lower()]
    values += stored(field, part) if field in STORED else ()
    return [ProposedWord(f"{name}{sign}{_quoted(value)}", field) for value in values if '"' not in value]


def _fixed(field: str, sign: str) -> list[str]:
    """The values that a field can have, where they are few."""
    kind = FIELDS.get(field)
    if field in ("state", "reason"):
        return [*(State if field == "state" else Reason)]
    if field == "by":
        return [ME]
    if kind is FieldKind.FLAG or field == "imported":
        return ["yes", "no"]
    if kind is FieldKind.MOMENT:
        return [age.lstrip("<>") if sign != ":" else age for age in _AGES]
    return [*spec.FIELDS[field].choices] if field in spec.FIELDS else []


def _signs(kind: FieldKind) -> tuple[str, ...]:
    return _SIGNS.get(kind, ("<", ">", "="))


def _series(name: str) -> str:
    is_plain = "/" in name and re.fullmatch(r'[^\s":<>=!|]+', name)
    is_clear = is_plain or (_quoted(name) == name and name.lower() not in FIELDS and similar(name) is None)
    return name if is_clear and not name.startswith("-") else f'"{name}"'


def _quoted(value: str) -> str:
    return value if re.fullmatch(r'[^\s"|]+', value) else f'"{value}"'
