"""Values that became NaN or infinite: since which step, and how to say so; shared by store, workers and pages."""

from __future__ import annotations

import math


def since(value: float, step: int, before: float, previous_since: int | None) -> int | None:
    """First step of the run of equal non-finite values that a series ends with; None when it ends with a number.

    `before` and `previous_since` are the value and the result for the previous point."""
    if math.isfinite(value):
        return None
    return previous_since if previous_since is not None and _kind(before) == _kind(value) else step


def in_words(value: float, since_step: int | None) -> str:
    """NaN since step 812."""
    return _kind(value) if since_step is None else f"{_kind(value)} since step {since_step}"


def _kind(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "∞" if value > 0 else "−∞"
