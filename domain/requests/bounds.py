"""Numbers that messages may hold: what a store can keep, a page can show, and a loop can count. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field

LAST_MOMENT = 250_000_000_000
"""Seconds since the epoch, in the year 9892: no later one is a date."""
MOST_RANKS = 1 << 20
_FIGURES = frozenset(
    {
        "cores", "memory_bytes", "utilisation_percent", "memory_used_bytes", "temperature_c", "power_w",
        "clock_offset_s", "clock_error_s",
    }
)  # fmt: skip
"""Names of facts about a node that are numbers, or not known."""


def _with_sane_numbers(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with None for numbers that cannot be shown, and for figures that are none."""
    return {name: _sane(value, must_be_number=name in _FIGURES) for name, value in facts.items()}


def _sane(value: Any, must_be_number: bool = False) -> Any:
    is_number = isinstance(value, int | float)
    if must_be_number or (is_number and not isinstance(value, float)):
        return value if is_number and abs(value) < 2**63 else None  # NaN is not less
    if isinstance(value, dict):
        return _with_sane_numbers(value)
    return [_sane(item) for item in value] if isinstance(value, list) else value


Integer = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""Of bytes, calls, lines: nothing that anybody counts up to."""
Rank = Annotated[int, Field(ge=0, lt=MOST_RANKS)]
"""A rank, or a node's."""
WorldSize = Annotated[int, Field(ge=0, le=MOST_RANKS)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Moment = Annotated[float, Field(ge=0, le=LAST_MOMENT)]
"""Seconds since the epoch."""
Seconds = Annotated[float, Field(ge=0, le=LAST_MOMENT)]
Offset = Annotated[float, Field(ge=-LAST_MOMENT, le=LAST_MOMENT)]
"""Seconds between two clocks."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
Facts = Annotated[dict[str, Any], AfterValidator(_with_sane_numbers)]
"""What a node found out about itself: a wild number is no reason to refuse the rest."""
