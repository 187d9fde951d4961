"""Parse a search; errors carry the position of the word and the rule."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from domain.messages import State
from domain.search.fields import ALIASES, FIELDS, similar
from domain.search.query import Comparison, Condition, FieldKind, Query, QueryError, Value
from domain.spec import Label


def parse(text: str, now: float) -> Query:
    """Parse a search; ages in it count back from `now`. Raises QueryError."""
    _check_text(text)
    return _Parser(text, now).parse()


LONGEST = 500
"""Characters of a search."""
_TERM = re.compile(
    r"""(?P<minus>-?)(?:
        (?P<name>"[^"]*"|[^\s":<>=!|]+)(?P<operator>:?(?:<=|>=|!=|<|>|=)|:)(?P<value>"[^"]*"|[^\s"|]*)
        |(?P<text>"[^"]*"|[^\s"|]+)
    )(?=[\s|]|$)""",
    re.VERBOSE,
)
_CONNECTIVE = re.compile(r"\||(?:or|and|not)(?=[\s|]|$)", re.IGNORECASE)
_WORD = re.compile(r'(?:"[^"]*"?|[^\s|"])+')
_SPACE = re.compile(r"\s*")


class _Parser:
    """Reads terms from left to right; `or` opens the next alternative, `not` negates the next condition."""

    def __init__(self, text: str, now: float) -> None:
        self._text, self._now = text, now
        self._alternatives: list[list[Condition]] = [[]]
        self._waiting: re.Match[str] | None = None
        """An `or` or `not` whose condition has not been read yet."""
        self._is_negated = False

    def parse(self) -> Query:
        """Read all the text. Raises QueryError."""
        position = _end_of_space(self._text, 0)
        while position < len(self._text):
            position = _end_of_space(self._text, self._take(position))
        if self._waiting:
            raise _missing(self._waiting, "after")
        return Query(tuple(tuple(conditions) for conditions in self._alternatives))

    def _take(self, position: int) -> int:
        """Read one word or condition and return where it ends."""
        connective = _CONNECTIVE.match(self._text, position)
        if connective is None:
            return self._take_condition(position)
        if connective[0].lower() == "not":
            self._waiting, self._is_negated = connective, not self._is_negated
        elif connective[0].lower() != "and":
            self._open_alternative(connective)
        return connective.end()

    def _open_alternative(self, connective: re.Match[str]) -> None:
        if self._waiting or not self._alternatives[-1]:
            raise _missing(connective, "before")
        self._alternatives.append([])
        self._waiting = connective

    def _take_condition(self, position: int) -> int:
        condition, end = _condition(self._text, position, self._now)
        is_negated = condition.is_negated != self._is_negated
        self._alternatives[-1].append(replace(condition, is_negated=is_negated))
        self._waiting, self._is_negated = None, False
        return end


ME = "me"
"""In `by:me`: the person who searches."""
MINE = f"by:{ME}"


def mine(text: str) -> str:
    """The search among one's own runs: each of its alternatives is narrowed."""
    narrowed, position = MINE, _end_of_space(text, 0)
    while position < len(text):
        match = _CONNECTIVE.match(text, position) or _WORD.match(text, position)
        end = match.end() if match else position + 1
        narrowed += f" {text[position:end]}"
        if text[position:end].lower() in ("or", "|"):
            narrowed += f" {MINE}"
        position = _end_of_space(text, end)
    return narrowed


def as_text(words: str) -> str:
    """A search for these words as they are, without fields and operators."""
    if re.fullmatch(r"\w[\w.-]*", words) and not _CONNECTIVE.fullmatch(words):
        return words
    return " ".join(f'"{part}"' for part in words.split('"') if part.strip())


def _condition(text: str, position: int, now: float) -> tuple[Condition, int]:
    term = _TERM.match(text, position)
    if term is None:
        raise _unreadable(text, position)
    is_negated = term["minus"] == "-"
    if term["text"] is not None:
        value = _unquoted(term["text"])
        return Condition(FieldKind.ANYWHERE, "", Comparison.CONTAINS, value, is_negated), term.end()
    kind, name = _subject(term)
    sign = term["operator"].removeprefix(":") or ":"
    operator, is_negated = (Comparison.EQUAL, not is_negated) if sign == "!=" else (Comparison(sign), is_negated)
    if not term["value"]:
        raise QueryError(f"{name} needs a value after {term['operator']}", term.start("name"), term.end())
    try:
        read = read_value(name, kind, operator, _unquoted(term["value"]), now)
    except ValueError as error:
        raise QueryError(str(error), term.start("value"), term.end("value")) from None
    return Condition(kind, name, *read, is_negated), term.end()


def _subject(term: re.Match[str]) -> tuple[FieldKind, str]:
    """The kind and name of a term's field or series. Raises QueryError."""
    name = term["name"]
    field = ALIASES.get(name.lower(), name.lower())
    if field in FIELDS:
        return FIELDS[field], field
    meant = None if name.startswith('"') or "/" in name else similar(name)
    is_order = term["operator"] != ":"
    if meant is None and (is_order or name.startswith('"') or "/" in name):
        return FieldKind.SERIES, _unquoted(name)
    if is_order:
        advice = f'did you mean {meant}? A series of that name is written in quotes: "{name}"'
    elif meant:
        advice = f"did you mean {meant}?"
    else:
        advice = f'to look for the text, put it in quotes: "{term["name"]}{term["operator"]}{term["value"]}"'
    raise QueryError(f'There is no field "{name}": {advice}', term.start("name"), term.end("name"))


def _check_text(text: str) -> None:
    if len(text) > LONGEST:
        raise QueryError(f"A search has at most {LONGEST} characters, this one {len(text)}", LONGEST, len(text))
    for position, character in enumerate(text):
        if (ord(character) < 32 and not character.isspace()) or 0xD800 <= ord(character) < 0xE000:
            raise QueryError("A search has no control characters", position, position + 1)


def _unreadable(text: str, position: int) -> QueryError:
    token = _WORD.match(text, position)
    end = token.end() if token else position + 1
    if text.count('"', position) % 2:
        start = text.rindex('"')
        return QueryError("This quotation mark is not closed: add another one", start, len(text))
    return QueryError("Put a space before and after a quoted text", position, end)


def _missing(connective: re.Match[str], side: str) -> QueryError:
    return QueryError(f"{connective[0]} needs a condition {side} it", *connective.span())


def _end_of_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text


# Read the value of a condition: a number, a date, an age, a duration, yes or no, or text.

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|min|m|h|d|w)")
_AGES = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.AT_MOST: Comparison.AT_LEAST,
    Comparison.GREATER: Comparison.LESS,
    Comparison.AT_LEAST: Comparison.AT_MOST,
}
"""Something older began earlier: how an age's comparison is one of times."""
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_value(name: str, kind: FieldKind, operator: Comparison, text: str, now: float) -> tuple[Comparison, Value]:
    """The comparison and its value as stored ones are compared; ages count back from `now`.

    Raises ValueError with the rule."""
    if kind is FieldKind.MOMENT:
        return _moment(name, operator, text, now)
    if kind in (FieldKind.NUMBER, FieldKind.SERIES, FieldKind.DURATION):
        value = _duration(name, text) if kind is FieldKind.DURATION else _number(name, text)
        return (Comparison.EQUAL if operator is Comparison.CONTAINS else operator), value
    if operator not in (Comparison.CONTAINS, Comparison.EQUAL):
        raise ValueError(f"{name} has no order: write {name}:{text or 'VALUE'}")
    if kind is FieldKind.FLAG:
        return Comparison.EQUAL, _flag(name, text)
    if name == "state":
        _check_state(text)
    return (operator if kind is FieldKind.TEXT else Comparison.EQUAL), text


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f'{name} is compared with a number, like {name}>0.5; "{text}" is none')
    return value


def _duration(name: str, text: str) -> float:
    read = _DURATION.fullmatch(text.lower())
    if read is None:
        raise ValueError(f"{name} is compared with seconds, minutes, hours or days, like {name}>30m or {name}<2h")
    return float(read[1]) * SECONDS[read[2]]


def _moment(name: str, operator: Comparison, text: str, now: float) -> tuple[Comparison, float]:
    age = _DURATION.fullmatch(text.lower())
    try:
        at = now - float(age[1]) * SECONDS[age[2]] if age else _date(text)
    except ValueError:
        rule = f"an age, like {name}:<2d (in the last two days), or a date, like {name}>2026-01-31"
        raise ValueError(f'{name} is compared with {rule}; "{text}" is neither') from None
    if age is None and operator in (Comparison.CONTAINS, Comparison.EQUAL):
        raise ValueError(f"{name} needs < or >, like {name}>{text}")
    if operator not in _AGES:
        raise ValueError(f"{name} needs < (in the last {text}) or > (before that), like {name}:<{text}")
    return (_AGES[operator] if age else operator), at


def _date(text: str) -> float:
    """Seconds since the epoch of an ISO date in UTC, or of a time with an offset. Raises ValueError."""
    read = datetime.fromisoformat(text)
    aware = read if read.tzinfo else read.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError(f'{name} is yes or no, like {name}:yes; "{text}" is neither')
    return _FLAGS[text.lower()]


def _check_state(text: str) -> None:
    states = [state.value for state in State]
    if text.lower() not in states:
        meant = get_close_matches(text.lower(), states, 1)
        rule = f"did you mean {meant[0]}?" if meant else f"it is one of {', '.join(states)}"
        raise ValueError(f'There is no state "{text}": {rule}')


# A view of the list of runs that people save by name.

MOST_VIEWS = 200
"""Of an installation."""
Short = Annotated[str, Field(max_length=LONGEST)]


class ViewDefinition(BaseModel):
    """Which runs a view lists, in which order, with which columns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filter: Short = ""
    """In the language of the search; one that cannot be read is shown with its error."""
    states: Annotated[list[State], Field(max_length=20)] = []
    project: Annotated[str, Field(max_length=200)] | None = None
    columns: Annotated[list[Short], Field(max_length=60)] | None = None
    """Those of the Runs page by their names there, others as `domain.search.fields.parse_column` reads them; None
    for those that the page has by itself."""
    sort: Short = ""


class NamedView(ViewDefinition):
    """A view with its name."""

    name: Annotated[Label, Field(min_length=1)]
