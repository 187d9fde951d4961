"""The parameters of a sweep: lists of values or ranges, as people write them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Value = bool | int | float | str
Number = int | Annotated[float, Field(allow_inf_nan=False)]
_LOG = re.compile(r"\s*:?\s+log\s*$")
"""The end of a range that is written with a space: 1e-5..1e-2 log."""
FORM = "NAME=VALUE,VALUE,… or NAME=LOW..HIGH, for example lr=1e-4,1e-3 or lr=1e-5..1e-2:log"


class SweptParameter(BaseModel):
    """Either a list of values, or a range whose ends count; of whole numbers where both ends are whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    values: Annotated[list[Value], Field(min_length=1, max_length=1000)] | None = None
    low: Number | None = None
    high: Number | None = None
    log: bool = False
    """Whether every order of magnitude is equally likely."""

    @model_validator(mode="after")
    def _is_list_or_range(self) -> Self:
        if self.values is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("must be a list of values or a range, not both")
            if len(set(map(str, self.values))) < len(self.values):
                raise ValueError("names a value twice")
        elif self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("must be a list of values, or a range from a lower to a higher number")
        elif self.log and self.low <= 0:
            raise ValueError("must begin above 0 to be logarithmic")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether a range has only whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def tried(self) -> list[Value]:
        """All values, or the ends of a range and, unless it is of whole numbers, a fraction within: to check them."""
        if self.low is None or self.high is None:
            return list(self.values or ())
        inside = [] if self.is_whole else [self.low + (self.high - self.low) / math.pi]
        return [self.low, self.high, *inside]

    def __str__(self) -> str:
        if self.values is not None:
            return ",".join(as_argument(value) for value in self.values)
        return f"{self.low}..{self.high}{':log' if self.log else ''}"


def parameters_of(texts: Iterable[str]) -> dict[str, SweptParameter]:
    """Return the parameters that people wrote, by name. Raises ValueError with the rule."""
    parameters: dict[str, SweptParameter] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not (name and equals and values):
            raise ValueError(f"must be {FORM}, got {text!r}")
        if name in parameters:
            raise ValueError(f"{name} is given twice")
        parameters[name] = parameter_of(values)
    return parameters


def holds_several(text: str) -> bool:
    """Whether a text is a list or a range, where a single value is expected otherwise."""
    return "," in text or ".." in text


def parameter_of(text: str) -> SweptParameter:
    """Return the parameter of a list or range as people write it. Raises ValueError."""
    ends, _, scale = _LOG.sub(":log", text).partition(":")
    low, dots, high = ends.partition("..")
    if not dots:
        return SweptParameter(values=[value_of(value.strip()) for value in text.split(",")])
    numbers = value_of(low.strip()), value_of(high.strip())
    if any(isinstance(end, str) for end in numbers) or scale not in ("", "log"):
        raise ValueError(f"a range must be LOW..HIGH or LOW..HIGH:log with numbers, got {text!r}")
    return SweptParameter.model_validate({"low": numbers[0], "high": numbers[1], "log": bool(scale)})


def value_of(text: str) -> int | float | str:
    """Return a number where the text is one."""
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text


def as_argument(value: Value) -> str:
    """Return a value as the text of an argument: 0.0003, true."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def in_words(params: Mapping[str, Value]) -> str:
    """Return the values of a trial, floats to four digits: lr=0.001 accumulate=2."""
    short = {name: f"{one:.4g}" if isinstance(one, float) else as_argument(one) for name, one in params.items()}
    return " ".join(f"{name}={text}" for name, text in short.items())


# The seeds of one training, as people write them: one run for each. Pure.

MOST_SEEDS = 100
SEEDS_FORM = "must be whole numbers from 0 on, such as 1,2,3 or 1..5"


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a list (1,2,3) or a range whose ends count (1..5). Raises ValueError with the rule."""
    seeds = listed(parameter_of(text))
    if seeds is None:
        raise ValueError(f"{SEEDS_FORM}, and at most {MOST_SEEDS}; got {text!r}")
    return seeds


def listed(parameter: SweptParameter) -> list[int] | None:
    """Return all values of a parameter as seeds; None where they are no seeds or too many."""
    low, high = parameter.low, parameter.high
    values: list[Value] | range = parameter.values or []
    if isinstance(low, int) and isinstance(high, int) and high - low < MOST_SEEDS and not parameter.log:
        values = range(low, high + 1)
    seeds = [value for value in values if type(value) is int and value >= 0]
    return seeds if 0 < len(seeds) == len(values) <= MOST_SEEDS else None
