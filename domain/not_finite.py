"""A value that is no number any more: since when, and in which words; one rule for the store, workers and pages."""

from __future__ import annotations

import math


def since(value: float, step: int, before: float, known: int | None) -> int | None:
    """First step of the equal values, all NaN or all the same infinity, that a series ends with; None for a number.

    `before` and `known` are the value and the answer for the point before."""
    if math.isfinite(value):
        return None
    return known if known is not None and _kind(before) == _kind(value) else step


def told(value: float, since_step: int | None) -> str:
    """NaN since step 812."""
    return _kind(value) if since_step is None else f"{_kind(value)} since step {since_step}"


def _kind(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "∞" if value > 0 else "−∞"
