"""The seeds of one training, as people write them: one run for each. Pure."""

from __future__ import annotations

from domain.sweeps.parameters import SweptParameter, Value, parameter_of

MOST_SEEDS = 100
FORM = "must be whole numbers from 0 on, such as 1,2,3 or 1..5"


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a list (1,2,3) or a range whose ends count (1..5). Raises ValueError with the rule."""
    seeds = listed(parameter_of(text))
    if seeds is None:
        raise ValueError(f"{FORM}, and at most {MOST_SEEDS}; got {text!r}")
    return seeds


def listed(parameter: SweptParameter) -> list[int] | None:
    """Return all values of a parameter as seeds; None where they are no seeds or too many."""
    low, high = parameter.low, parameter.high
    values: list[Value] | range = parameter.values or []
    if isinstance(low, int) and isinstance(high, int) and high - low < MOST_SEEDS and not parameter.log:
        values = range(low, high + 1)
    seeds = [value for value in values if type(value) is int and value >= 0]
    return seeds if 0 < len(seeds) == len(values) <= MOST_SEEDS else None
