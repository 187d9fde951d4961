"""JSON that every store takes: numbers that are none stand as words, as in the API."""

from __future__ import annotations

import json
import math
from typing import Any


def dump_json(value: Any) -> str:
    """Plain JSON; PostgreSQL refuses Python's NaN and Infinity."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_in_words(value), allow_nan=False)


def _in_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_words(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_words(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
