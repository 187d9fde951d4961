"""Read the value of a condition: a number, a date, an age, a duration, yes or no, or text."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from domain.messages import State
from domain.search.query import Comparison, FieldKind, Value

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


def read_value(
    name: str, kind: FieldKind, operator: Comparison, text: str, now: float
) -> tuple[Comparison, Value]:
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
        raise ValueError(
            f"{name} is compared with seconds, minutes, hours or days, like {name}>30m or {name}<2h"
        )
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
