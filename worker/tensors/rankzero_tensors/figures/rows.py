"""Rows of a result, as many as a document of bounded size holds. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]


def fitting(rows: Sequence[Row], budget_bytes: int, urgency: Callable[[Row], Any]) -> list[Row]:
    """Return the rows that fit into so many bytes of JSON, the most urgent ones first chosen, in their order."""
    by_urgency = sorted(range(len(rows)), key=lambda place: urgency(rows[place]), reverse=True)
    chosen, left_bytes = [], budget_bytes
    for place in by_urgency:
        left_bytes -= len(json.dumps(rows[place])) + 2
        if left_bytes < 0:
            break
        chosen.append(place)
    return [rows[place] for place in sorted(chosen)]


def plain(name: str) -> str:
    """Return a name that every encoder accepts: a file may hold halves of characters."""
    return name.encode(errors="replace").decode()


def known(value: float) -> float | None:
    """Return a number that JSON has; None for the others."""
    return value if math.isfinite(value) else None
