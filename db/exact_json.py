"""JSON that every store accepts: NaN and infinities are written as strings, as in the API."""

from __future__ import annotations

import json
import math
from typing import Any


def dump_json(value: Any) -> str:
    """Serialize to standard JSON; PostgreSQL rejects Python's NaN and Infinity."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_in_words(value), allow_nan=False)


def _in_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_words(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
