"""JSON that others wrote: a text either has a value, or it is a ValueError, however it is damaged or nested."""

from __future__ import annotations

import json
from typing import Any

MOST_DIGITS = 300
"""A longer integer counts as a float, which may be infinite: no float holds it exactly."""


class NestedTooDeeply(ValueError):
    """It is JSON, as far as it was read, but nothing reads so many levels."""


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text. Raises ValueError for all that has none, and NestedTooDeeply, which is one."""
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError as error:
        raise NestedTooDeeply("its JSON is nested too deeply") from error


def storable(text: str) -> str:
    """Return a name from JSON or from a file system as one that UTF-8 has: without halves of surrogate pairs."""
    return text.encode(errors="replace").decode()


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)
