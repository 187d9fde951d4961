"""JSON of anything the store returns: the fast way says the same as the plain one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from dashboard.json_responses import document, json_text, text_of
from domain.messages import State
from domain.spec import RunSpec


class Side(Enum):
    LEFT = "left"


class Pair(NamedTuple):
    first: int
    second: float


@dataclass(frozen=True)
class Holder:
    number: Any
    state: State
    inner: Any = None


VALUES = [
    None, True, -3, 0.1, 1e300, "ü\ud800", [], {}, (1, 2), b"ab", {"a"}, frozenset({1}), range(3), Side.LEFT,
    State.QUEUED, {State.QUEUED: [State.FAILED]}, {1: "one", 2.5: "some"}, Counter("aab"), {(1, 2): 3},
    MappingProxyType({"a": Side.LEFT}), Pair(1, 2.0), RunSpec(target="x", env={"A": "b"}),
    Holder(1.5, State.RUNNING, Holder([Side.LEFT], State.FAILED)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_text_is_that_of_the_plain_values(value: Any) -> None:
    assert text_of(value) == json_text(document(value))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_words(number: float) -> None:
    value = [Holder(number, State.RUNNING, {"a": (number, 1.0)})]
    word = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
    assert text_of(value) == json_text(document(value))
    assert text_of(value) == f'[{{"number":"{word}","state":"running","inner":{{"a":["{word}",1.0]}}}}]'
