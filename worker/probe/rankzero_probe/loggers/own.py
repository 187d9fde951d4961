"""Figures that a script hands over itself: `rankzero.log`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from .. import process_state
from . import records, values

NAME = "rankzero"
SEPARATOR = "/"
_next_step = 0


def log(figures: Mapping[Any, Any], step: Any = None) -> list[str]:
    """Write the numbers among the figures of a step, by default the one after the last; return the names of others.

    Names of other ranks than rank 0 begin with the rank. Raises TypeError, ValueError for a step that is no number."""
    global _next_step
    number = _next_step if step is None else int(step)
    _next_step = number + 1
    row = dict(values.numbers(figures, SEPARATOR))
    prefix = "" if records.is_rank_zero() else f"rank{_rank()}:"
    records.is_needed = True
    records.write_points(NAME, number, {f"{prefix}{name}": value for name, value in row.items()})
    return [name for name in _names(figures) if name not in row]


def begin_anew() -> None:
    """Count steps from 0 on."""
    global _next_step
    _next_step = 0


def _names(figures: Mapping[Any, Any], prefix: str = "") -> list[str]:
    """Return the names of all figures, numbers or not."""
    names: list[str] = []
    for key, value in figures.items():
        is_nested = isinstance(value, Mapping)
        names += _names(value, f"{prefix}{key}{SEPARATOR}") if is_nested else [f"{prefix}{key}"]
    return names


def _rank() -> str:
    if process_state.is_in_process_group():
        return str(sys.modules["torch.distributed"].get_rank())
    return os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
