"""Numbers and plain data in the arguments of a logging call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_TEXT = 1000
MAX_ENTRIES = 500
MAX_DEPTH = 6


def number(value: Any) -> float | None:
    """Return a number, or the only element of an array or tensor, as a float; None for all else."""
    if isinstance(value, float | int):
        return float(value)
    count = value.numel() if hasattr(value, "numel") else getattr(value, "size", 0)
    if count == 1 and callable(getattr(value, "item", None)):
        return number(value.item())
    return None


def numbers(values: Mapping[Any, Any], separator: str, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (name, value) of each number; the names of nested mappings are joined by the separator."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from numbers(value, separator, f"{prefix}{key}{separator}")
        elif (scalar := number(value)) is not None:
            yield f"{prefix}{key}", scalar


def plain(value: Any, depth: int = 0) -> Any:
    """Return the value as JSON can hold it: nested mappings and lists, at most `MAX_DEPTH` deep, all else as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        items = list(value.items())[:MAX_ENTRIES]
        return {str(key)[:MAX_TEXT]: plain(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset) and depth < MAX_DEPTH:
        return [plain(item, depth + 1) for item in list(value)[:MAX_ENTRIES]]
    return str(value)[:MAX_TEXT]
